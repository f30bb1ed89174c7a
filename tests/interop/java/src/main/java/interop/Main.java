package interop;

/**
 * The official Java SDK on the other side: a server and a client, in one program.
 *
 * <pre>
 * interop.Main server stdio | http
 * interop.Main client '{"era": "2025-11-25", "http": "http://...", "leave_out": []}'
 * </pre>
 *
 * The server has the things of tests/interop/servers; over HTTP it prints its address. The client
 * plays the scenarios of drive_mcp.py at the everything-server, under the same names, and prints the
 * same lines.
 */
public final class Main {
	public static void main(String[] given) throws Exception {
		if (given[0].equals("server")) {
			Server.serve(given[1]);
		}
		else {
			Client.drive(given[1]);
		}
	}
}
