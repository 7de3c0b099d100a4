import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Adds entries to one new ledger and prints what it took: METADATA_URI ENTRIES BYTES WINDOW.
 * WINDOW is how many adds are under way at once. One failed add ends it with exit code 1.
 */
public final class Client {
    public static void main(String[] arguments) throws Exception {
        String uri = arguments[0];
        int entries = Integer.parseInt(arguments[1]);
        byte[] data = new byte[Integer.parseInt(arguments[2])];
        Semaphore window = new Semaphore(Integer.parseInt(arguments[3]));
        new Random(1).nextBytes(data);
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(uri);
        try (BookKeeper bookkeeper = BookKeeper.newBuilder(settings).build();
                WriteHandle ledger = newLedger(bookkeeper)) {
            long[] latencies = new long[entries];
            CountDownLatch done = new CountDownLatch(entries);
            long start = System.nanoTime();
            for (int i = 0; i < entries; i++) {
                window.acquire();
                int entry = i;
                long added = System.nanoTime();
                ledger.appendAsync(data).whenComplete((id, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                        System.exit(1);
                    }
                    latencies[entry] = System.nanoTime() - added;
                    window.release();
                    done.countDown();
                });
            }
            done.await();
            print(ledger.getId(), latencies, System.nanoTime() - start);
        }
    }

    private static WriteHandle newLedger(BookKeeper bookkeeper) throws Exception {
        return bookkeeper.newCreateLedgerOp()
                .withEnsembleSize(1)
                .withWriteQuorumSize(1)
                .withAckQuorumSize(1)
                .withDigestType(DigestType.CRC32C)
                .withPassword(new byte[] {'x'})
                .execute()
                .get();
    }

    private static void print(long ledger, long[] latencies, long elapsed) {
        Arrays.sort(latencies);
        int last = latencies.length - 1;
        System.out.printf(Locale.ROOT, "added ledger=%d entries=%d seconds=%.3f median_ms=%.3f p99_ms=%.3f max_ms=%.3f%n",
                ledger, latencies.length, elapsed / 1e9, latencies[last / 2] / 1e6,
                latencies[(int) (last * 0.99)] / 1e6, latencies[last] / 1e6);
    }
}
