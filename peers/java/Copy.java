import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Copies files: {@code Copy files-copy | transfer-to}. */
final class Copy {
    private interface Transfer {
        void copy(Path from, Path to) throws IOException;
    }

    public static void main(String[] arguments) throws IOException {
        Transfer transfer = switch (arguments[0]) {
            case "files-copy" -> Files::copy;
            case "transfer-to" -> Copy::byTransferTo;
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        Porter.run("java-" + arguments[0], job -> {
            if (job.length != 4 || !job[0].equals("copy")) {
                throw new IOException("not a job");
            }
            Path from = Path.of(job[1]);
            Path to = Path.of(job[2]);
            long moved = 0;
            for (int times = Integer.parseInt(job[3]); times > 0; times--) {
                Files.deleteIfExists(to);
                transfer.copy(from, to);
                moved += Files.size(to);
            }
            return moved;
        });
    }

    private static void byTransferTo(Path from, Path to) throws IOException {
        try (var in = FileChannel.open(from);
                var out = FileChannel.open(
                        to, StandardOpenOption.WRITE, StandardOpenOption.CREATE_NEW)) {
            long size = in.size();
            long moved = 0;
            while (moved < size) {
                long count = in.transferTo(moved, size - moved, out);
                if (count == 0) {
                    break; // somebody has truncated it
                }
                moved += count;
            }
        }
    }
}
