import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/** Does one job for each line of standard input until it ends, and says what came of it. */
final class Porter {
    interface Work {
        /** The number of bytes moved. */
        long apply(String[] job) throws IOException;
    }

    private Porter() {}

    static void run(String name, Work work) throws IOException {
        System.out.println("ready " + name + " Java " + Runtime.version());
        var jobs = new BufferedReader(new InputStreamReader(System.in));
        for (String job; (job = jobs.readLine()) != null; ) {
            System.out.println(answer(work, job));
        }
    }

    private static String answer(Work work, String job) {
        try {
            return "ok " + work.apply(job.split("\t"));
        } catch (IOException | RuntimeException failure) {
            return "failed " + failure.toString().replace('\n', ' ');
        }
    }
}
