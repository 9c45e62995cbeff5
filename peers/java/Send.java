import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/** Sends files over TCP: {@code Send streams | transfer-to}. */
final class Send {
    private interface Transfer {
        long send(Path file, InetSocketAddress to) throws IOException;
    }

    public static void main(String[] arguments) throws IOException {
        Transfer transfer = switch (arguments[0]) {
            case "streams" -> Send::byStreams;
            case "transfer-to" -> Send::byTransferTo;
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        Porter.run("java-" + arguments[0], job -> {
            if (job.length != 3 || !job[0].equals("send")) {
                throw new IOException("not a job");
            }
            int colon = job[2].lastIndexOf(':');
            int port = Integer.parseInt(job[2].substring(colon + 1));
            return transfer.send(
                    Path.of(job[1]), new InetSocketAddress(job[2].substring(0, colon), port));
        });
    }

    private static long byStreams(Path file, InetSocketAddress to) throws IOException {
        try (var in = new FileInputStream(file.toFile());
                var socket = new Socket(to.getAddress(), to.getPort())) {
            long sent = in.transferTo(socket.getOutputStream());
            socket.shutdownOutput();
            socket.getInputStream().readAllBytes();
            return sent;
        }
    }

    private static long byTransferTo(Path file, InetSocketAddress to) throws IOException {
        try (var in = FileChannel.open(file);
                var socket = SocketChannel.open(to)) {
            long size = in.size();
            long sent = 0;
            while (sent < size) {
                long count = in.transferTo(sent, size - sent, socket);
                if (count == 0) {
                    break; // somebody has truncated it
                }
                sent += count;
            }
            socket.shutdownOutput();
            while (socket.read(ByteBuffer.allocate(64)) >= 0) {
                // the other side ends when it has everything
            }
            return sent;
        }
    }
}
