import com.sun.tools.attach.VirtualMachine;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints how many flushes of log segments the broker of a PID has counted, without a port that is open all the time. */
public final class Flushes {
    public static void main(String[] arguments) throws Exception {
        VirtualMachine broker = VirtualMachine.attach(arguments[0]);
        String address = broker.startLocalManagementAgent();
        broker.detach();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs");
            System.out.println("flushes " + beans.getAttribute(name, "Count"));
        }
    }
}
