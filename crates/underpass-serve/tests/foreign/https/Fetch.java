import java.io.InputStream;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Prints the SHA-256 of what a URL has: URL, file of the authority, version. */
class Fetch {
    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (InputStream pem = Files.newInputStream(Path.of(args[1]))) {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            store.setCertificateEntry("ca", factory.generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(store);
        SSLContext context = SSLContext.getInstance(args[2]);
        context.init(null, trust.getTrustManagers(), null);
        HttpsURLConnection.setDefaultSSLSocketFactory(context.getSocketFactory());
        // The second one is resumed, or uses the same connection.
        byte[] last = null;
        for (int round = 0; round < 2; round++) {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            try (InputStream body = new URL(args[0]).openStream()) {
                byte[] room = new byte[50_000];
                for (int read; (read = body.read(room)) > 0; ) {
                    digest.update(room, 0, read);
                }
            }
            last = digest.digest();
        }
        System.out.println(HexFormat.of().formatHex(last));
    }
}
