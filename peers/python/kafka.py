#!/usr/bin/env python3
"""Kafka as one broker that is its own controller: kafka.py OWN DATA HOST PORT [CERT KEY].

It becomes the Java process as Kafka's own start script would start it. The first start writes the
configuration into the folder OWN and formats the folder DATA.
"""

import os
import pathlib
import subprocess
import sys

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
CLIENTS = os.environ.get("UNDERPASS_CLIENTS") or os.path.join(CACHE, "underpass-clients")
JARS = os.path.join(CLIENTS, "java")
JAVA = ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", JARS + "/*"]
HEAP = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
HEAP += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
HEAP += ["-Djava.awt.headless=true"]

CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners={protocol}://{address},CONTROLLER://{controller}
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs={data}
offsets.topic.replication.factor=1
"""

TLS = """\
ssl.keystore.type=PEM
ssl.keystore.location={own}/key-and-cert.pem
ssl.truststore.type=PEM
ssl.truststore.location={cert}
"""


def configure(own, data, host, port, cert=None, key=None):
    """Returns the text of server.properties."""
    # Below the ports that connections come from.
    controller = f"127.0.0.1:{int(port) // 4 + 10000}"
    text = CONFIGURATION
    if cert:
        text += TLS
        parts = [pathlib.Path(part).read_text() for part in (key, cert)]
        pathlib.Path(own, "key-and-cert.pem").write_text("".join(parts))
    protocol, address = "SSL" if cert else "PLAINTEXT", f"{host}:{port}"
    return text.format(**locals())


def main():
    if sys.argv[1:] == ["--version"]:
        if not os.path.exists(JARS + "/kafka_2.13-4.3.1.jar"):
            sys.exit("Kafka's jars are missing")
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
        sys.exit(print("Kafka 4.3.1,", java.stderr.splitlines()[0]))
    properties = pathlib.Path(sys.argv[1], "server.properties")
    if not properties.exists():
        properties.write_text(configure(*sys.argv[1:]))
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", "4L6g3nShT-eMCtK--X86sw"]
        subprocess.run([*JAVA, *tool, "--config", properties], check=True)
    os.execvp(JAVA[0], [JAVA[0], *HEAP, *JAVA[1:], "kafka.Kafka", str(properties)])


main()
