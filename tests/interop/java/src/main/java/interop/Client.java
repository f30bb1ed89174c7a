package interop;

import static interop.Wire.MAPPER;
import static interop.Wire.inside;
import static interop.Wire.list;
import static interop.Wire.object;
import static interop.Wire.plain;
import static interop.Wire.read;

import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

/**
 * The official Java SDK as a client of the everything-server.
 *
 * Rules: judges nothing; what was seen is in the words of the wire.
 */
final class Client {
	private static final long SCENARIO_S = 30;
	private static final int LARGE = 400_000;
	private static final int AT_ONCE = 20;
	private static final String WATCHED = "test://watched-resource";
	private static final String FOLDER = "file:///projects/interop";
	private static final String UPDATED = "notifications/resources/updated";
	private static final String CHANGED = "notifications/tools/list_changed";
	/** What the user types into a field of this name; a field that is not here is left out. */
	private static final Map<String, Object> TYPED = object("username", "ada", "email", "ada@example.com", "name",
			"Ada", "age", 36, "ok", true, "value", true, "color", "green", "context", "interop", "untitledSingle",
			"option2", "titledSingle", "value2", "legacyEnum", "opt2", "untitledMulti", List.of("option1", "option3"),
			"titledMulti", List.of("value1", "value3"));

	/** Something that is played, and what was seen. */
	private interface Play {
		Object run() throws Exception;
	}

	private final Map<String, Object> spec;
	private final String era;
	private final McpSyncClient api;
	private final List<Object> questions = new ArrayList<>();
	private final List<List<Object>> notices = new ArrayList<>();
	private final List<Object> logs = new ArrayList<>();
	private final List<Object> steps = new ArrayList<>();

	private Client(Map<String, Object> spec, boolean able) {
		this.spec = spec;
		this.era = (String) spec.get("era");
		McpClient.SyncSpec making = McpClient.sync(transport())
			.clientInfo(read(McpSchema.Implementation.class, "name", "interop", "version", "1"))
			.requestTimeout(Duration.ofSeconds(SCENARIO_S))
			.initializationTimeout(Duration.ofSeconds(SCENARIO_S));
		if (able) {
			boolean hasModes = era.compareTo("2025-11-25") >= 0;
			Map<String, Object> modes = hasModes ? object("form", object(), "url", object()) : object();
			making.capabilities(read(McpSchema.ClientCapabilities.class, "roots", object("listChanged", false),
					"sampling", object(), "elicitation", modes));
			making.roots(read(McpSchema.Root.class, "uri", FOLDER, "name", "interop"));
			making.elicitation(asked -> elicited(asked));
			if (hasModes) {
				making.urlElicitation(asked -> elicited(asked));
			}
			making.sampling(asked -> {
				keep(questions, object("method", "sampling/createMessage", "params", plain(asked)));
				return read(McpSchema.CreateMessageResult.class, "role", "assistant", "content",
						Wire.text("Paris, of course"), "model", "interop");
			});
			making.loggingConsumer(line -> keep(logs, plain(line)));
			making.progressConsumer(step -> {
				List<Object> seen = new ArrayList<>(List.of(step.progress(), step.total() == null ? 0 : step.total()));
				seen.add(step.message());
				keep(steps, seen);
			});
			making.toolsChangeConsumer(tools -> {
				List<Object> notice = new ArrayList<>(List.of(CHANGED));
				notice.add(null);
				keep(notices, notice);
			});
			making.resourcesUpdateConsumer(contents -> contents
				.forEach(one -> keep(notices, new ArrayList<>(List.of(UPDATED, (Object) one.uri())))));
		}
		this.api = making.build();
		api.initialize();
	}

	private McpClientTransport transport() {
		if (spec.get("http") != null) {
			URI address = URI.create((String) spec.get("http"));
			return HttpClientStreamableHttpTransport.builder(address.getScheme() + "://" + address.getAuthority())
				.endpoint(address.getPath())
				.supportedProtocolVersions(List.of(era))
				.build();
		}
		List<String> words = list(spec, "stdio").stream().map(String::valueOf).toList();
		ServerParameters command = ServerParameters.builder(words.get(0)).args(words.subList(1, words.size())).build();
		StdioClientTransport transport = new StdioClientTransport(command, MAPPER) {
			@Override
			public List<String> protocolVersions() {
				return List.of(era);
			}
		};
		transport.setStdErrorHandler(System.err::println);
		return transport;
	}

	private synchronized <T> void keep(List<T> where, T what) {
		where.add(what);
		notifyAll();
	}

	/** Wait for something that is said to us; the scenario as a whole has a time limit. */
	private synchronized void until(BooleanSupplier isTrue) throws InterruptedException {
		while (!isTrue.getAsBoolean()) {
			wait();
		}
	}

	private long count(String method) {
		return notices.stream().filter(notice -> notice.get(0).equals(method)).count();
	}

	private McpSchema.ElicitResult elicited(McpSchema.ElicitRequest asked) {
		Map<String, Object> params = plain(asked);
		params.putIfAbsent("mode", asked.mode());
		keep(questions, object("method", "elicitation/create", "params", params));
		if (asked.message().contains("decline")) {
			return read(McpSchema.ElicitResult.class, "action", "decline");
		}
		Map<String, Object> content = object();
		inside(inside(params, "requestedSchema"), "properties").forEach((name, field) -> {
			Object value = TYPED.get(name);
			if (value instanceof List<?> values && "string".equals(((Map<?, ?>) field).get("type"))) {
				// Where there are no lists: their values, separated by commas.
				value = values.stream().map(String::valueOf).collect(Collectors.joining(", "));
			}
			if (value != null) {
				content.put(name, value);
			}
		});
		return "url".equals(asked.mode()) ? read(McpSchema.ElicitResult.class, "action", "accept")
				: read(McpSchema.ElicitResult.class, "action", "accept", "content", content);
	}

	// ---------------------------------------------------------------- the scenarios

	private Map<String, Object> call(String name, Object... arguments) {
		return plain(api.callTool(read(McpSchema.CallToolRequest.class, "name", name, "arguments", object(arguments))));
	}

	private Map<String, Object> callWithToken(String name, String token, Object... arguments) {
		return plain(api.callTool(read(McpSchema.CallToolRequest.class, "name", name, "arguments", object(arguments),
				"_meta", object("progressToken", token))));
	}

	private static Object refusal(RuntimeException error) {
		for (Throwable cause = error; cause != null; cause = cause.getCause()) {
			if (cause instanceof McpError refused && refused.getJsonRpcError() != null) {
				return plain(refused.getJsonRpcError());
			}
		}
		throw error;
	}

	private static Object refused(Play doing) throws Exception {
		Object seen;
		try {
			seen = doing.run();
		}
		catch (RuntimeException error) {
			return refusal(error);
		}
		throw new IllegalStateException("no error, but " + seen);
	}

	/** A result, or the error that came instead of one. */
	private Object callOrRefusal(String name, Object... arguments) {
		try {
			return call(name, arguments);
		}
		catch (RuntimeException error) {
			return refusal(error);
		}
	}

	private Object asked(String name, Object... arguments) {
		synchronized (this) {
			questions.clear();
		}
		Map<String, Object> result = call(name, arguments);
		// The SDK answers these by itself, and tells nobody that it was asked.
		return object("result", result, "questions", new ArrayList<>(questions), "unseen", List.of("roots/list"));
	}

	private Object meet() {
		Map<String, Object> said = plain(api.getCurrentInitializationResult());
		return object("revision", said.get("protocolVersion"), "server", said.get("serverInfo"), "instructions",
				said.get("instructions"), "capabilities", said.get("capabilities"));
	}

	private Object lists() {
		return object("tools", list(plain(api.listTools()), "tools"), "resources",
				list(plain(api.listResources()), "resources"), "templates",
				list(plain(api.listResourceTemplates()), "resourceTemplates"), "prompts",
				list(plain(api.listPrompts()), "prompts"));
	}

	private Object content() {
		Map<String, Object> seen = object();
		for (String name : List.of("image_content", "audio_content", "embedded_resource", "multiple_content_types")) {
			seen.put(name, call("test_" + name));
		}
		return seen;
	}

	private static String place(Map<String, Object> result) {
		return String.valueOf(inside(result, "structuredContent").get("place"));
	}

	private Object large() {
		Map<String, Object> result = call("test_structured_content", "place", "x".repeat(LARGE));
		String words = (String) ((Map<?, ?>) list(result, "content").get(0)).get("text");
		return List.of(words.length(), place(result).length());
	}

	private Object atOnce() {
		Map<String, Object> seen = object();
		List<CompletableFuture<Void>> running = new ArrayList<>();
		for (int nth = 0; nth < AT_ONCE; nth++) {
			String name = String.valueOf(nth);
			running.add(CompletableFuture.runAsync(() -> {
				String found = place(call("test_structured_content", "place", name));
				synchronized (seen) {
					seen.put(name, found);
				}
			}));
		}
		running.forEach(CompletableFuture::join);
		return seen;
	}

	private Object readAll() {
		List<Object> seen = new ArrayList<>();
		for (String uri : List.of("test://static-text", "test://static-binary", "test://template/42/data")) {
			seen.add(list(plain(api.readResource(read(McpSchema.ReadResourceRequest.class, "uri", uri))), "contents"));
		}
		return seen;
	}

	private Map<String, Object> prompt(String name, Object... arguments) {
		return plain(api.getPrompt(read(McpSchema.GetPromptRequest.class, "name", name, "arguments", object(arguments))));
	}

	private Object promptAsks() {
		synchronized (this) {
			questions.clear();
		}
		Map<String, Object> result = prompt("test_input_required_result_prompt");
		return object("result", result, "questions", new ArrayList<>(questions));
	}

	private Object complete() {
		McpSchema.CompleteReference about = read(McpSchema.PromptReference.class, "type", "ref/prompt", "name",
				"test_prompt_with_arguments");
		McpSchema.CompleteRequest.CompleteArgument typed = read(McpSchema.CompleteRequest.CompleteArgument.class, "name",
				"arg1", "value", "test");
		return plain(api.completeCompletion(McpSchema.CompleteRequest.builder(about, typed).build()));
	}

	// The SDK runs consumers on threads of a pool, so that what they hear comes in any order.

	private Object progress() throws InterruptedException {
		Map<String, Object> result = callWithToken("test_tool_with_progress", "steps");
		until(() -> steps.size() >= 3);
		return object("steps", steps, "result", result, "unordered", true);
	}

	private Object logging() throws InterruptedException {
		api.setLoggingLevel(McpSchema.LoggingLevel.INFO);
		Map<String, Object> result = call("test_logging_tool");
		until(() -> logs.size() >= 2);
		return object("logs", logs, "result", result, "unordered", true);
	}

	/** Another client of the same kind, which cannot be asked anything. */
	private Object unable() {
		Client other = new Client(spec, false);
		try {
			return object("result", other.call("test_missing_capability"));
		}
		catch (RuntimeException error) {
			return object("error", refusal(error));
		}
		finally {
			other.api.closeGracefully();
		}
	}

	/** Hear of a change; leave; change it again, and something else: only that is heard. */
	private Object subscribe() throws InterruptedException {
		synchronized (this) {
			notices.clear();
		}
		api.subscribeResource(read(McpSchema.SubscribeRequest.class, "uri", WATCHED));
		call("test_trigger_resource_update");
		until(() -> count(UPDATED) >= 1);
		api.unsubscribeResource(read(McpSchema.UnsubscribeRequest.class, "uri", WATCHED));
		call("test_trigger_resource_update");
		call("test_trigger_tool_change");
		until(() -> count(CHANGED) >= 1);
		boolean isNew = list(plain(api.listTools()), "tools").stream()
			.anyMatch(tool -> "test_fleeting_tool".equals(((Map<?, ?>) tool).get("name")));
		call("test_trigger_tool_change");
		until(() -> count(CHANGED) >= 2);
		return object("notices", notices, "new tool", isNew);
	}

	private Map<String, Play> plays() {
		Map<String, Object> all = object("meet", (Play) this::meet, "list", (Play) this::lists, "call",
				(Play) () -> call("test_simple_text"), "content", (Play) this::content, "structured",
				(Play) () -> object("object", call("test_structured_content", "place", "Turin"), "list",
						call("test_structured_list")),
				"raw schema",
				(Play) () -> object("fits",
						call("json_schema_2020_12_tool", "name", "Ada", "contactMethod", "email", "email",
								"ada@example.com"),
						"does not", callOrRefusal("json_schema_2020_12_tool", "name", "Ada")),
				"large", (Play) this::large, "at once", (Play) this::atOnce, "tool error",
				(Play) () -> call("test_error_handling"), "unknown tool",
				(Play) () -> refused(() -> call("no_such_tool")), "bad argument",
				(Play) () -> callOrRefusal("test_structured_content", "place", 7), "read", (Play) this::readAll,
				"unknown resource",
				(Play) () -> refused(
						() -> api.readResource(read(McpSchema.ReadResourceRequest.class, "uri", "test://nowhere"))),
				"prompt",
				(Play) () -> object("words", prompt("test_prompt_with_arguments", "arg1", "one", "arg2", "two"), "image",
						prompt("test_prompt_with_image"), "resource",
						prompt("test_prompt_with_embedded_resource", "resourceUri", "test://shown")),
				"prompt that asks", (Play) this::promptAsks, "complete", (Play) this::complete, "progress",
				(Play) this::progress, "logging", (Play) this::logging, "elicit",
				(Play) () -> asked("test_elicitation", "message", "Who are you?"), "elicit, declined",
				(Play) () -> asked("test_elicitation", "message", "You may decline"), "elicit, defaults",
				(Play) () -> asked("test_elicitation_sep1034_defaults"), "elicit, choices",
				(Play) () -> asked("test_elicitation_sep1330_enums"), "elicit, url",
				(Play) () -> asked("test_elicitation_url"), "elicit, twice",
				(Play) () -> asked("test_input_required_result_multi_round"), "elicit, streaming",
				(Play) () -> asked("test_streaming_elicitation"), "sample",
				(Play) () -> asked("test_sampling", "prompt", "Which city?"), "roots",
				(Play) () -> asked("test_input_required_result_list_roots"), "ask together",
				(Play) () -> asked("test_input_required_result_multiple_inputs"), "ask the unable",
				(Play) this::unable, "subscribe", (Play) this::subscribe, "reconnect",
				(Play) () -> call("test_reconnection"), "ping", (Play) () -> plain(api.ping()));
		return all.entrySet()
			.stream()
			.collect(Collectors.toMap(Map.Entry::getKey, one -> (Play) one.getValue(), (a, b) -> a,
					java.util.LinkedHashMap::new));
	}

	// ---------------------------------------------------------------- the run

	private static void report(Map<String, Object> line) throws Exception {
		System.out.println(MAPPER.writeValueAsString(line));
		System.out.flush();
	}

	private static void attempt(String scenario, Play play) throws Exception {
		CompletableFuture<Object> seen = CompletableFuture.supplyAsync(() -> {
			try {
				return play.run();
			}
			catch (RuntimeException error) {
				throw error;
			}
			catch (Exception error) {
				throw new IllegalStateException(error);
			}
		});
		try {
			report(object("scenario", scenario, "seen", seen.get(SCENARIO_S, TimeUnit.SECONDS)));
		}
		catch (Exception error) {
			report(object("scenario", scenario, "failed", String.valueOf(error)));
		}
	}

	@SuppressWarnings("unchecked")
	static void drive(String text) throws Exception {
		Map<String, Object> spec = MAPPER.readValue(text, Map.class);
		Client client = new Client(spec, true);
		for (Map.Entry<String, Play> one : client.plays().entrySet()) {
			if (!list(spec, "leave_out").contains(one.getKey())) {
				attempt(one.getKey(), one.getValue());
			}
		}
		client.api.closeGracefully();
		report(object("scenario", "leave", "seen", "left"));
		System.exit(0); // the pools of the SDK keep the process alive
	}
}
