package interop;

import static interop.Wire.MAPPER;
import static interop.Wire.inside;
import static interop.Wire.list;
import static interop.Wire.object;
import static interop.Wire.plain;
import static interop.Wire.read;
import static interop.Wire.text;

import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpServerFeatures.SyncCompletionSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncPromptSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceTemplateSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncToolSpecification;
import io.modelcontextprotocol.server.McpSyncServer;
import io.modelcontextprotocol.server.McpSyncServerExchange;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/** The things of a server on the official Java SDK, by its public API. */
final class Server {
	private static final String PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
	private static final String SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=";
	private static final List<String> LANGUAGES = List.of("pascal", "python", "go");
	private static final Duration PATIENCE = Duration.ofSeconds(20);

	/** What a tool does. */
	private interface Tool {
		McpSchema.CallToolResult call(McpSyncServerExchange exchange, McpSchema.CallToolRequest request);
	}

	private static McpSyncServer server;

	private static McpSchema.CallToolResult content(Map<String, Object> block) {
		return read(McpSchema.CallToolResult.class, "content", List.of(block));
	}

	private static McpSchema.CallToolResult say(String words) {
		return content(text(words));
	}

	private static McpSchema.CallToolResult failed(String words) {
		return read(McpSchema.CallToolResult.class, "content", List.of(text(words)), "isError", true);
	}

	private static McpSchema.CallToolResult structured(Map<String, Object> value) {
		try {
			String words = MAPPER.writeValueAsString(value);
			return read(McpSchema.CallToolResult.class, "content", List.of(text(words)), "structuredContent", value);
		}
		catch (java.io.IOException error) {
			throw new IllegalStateException(error);
		}
	}

	private static Map<String, Object> schema(String... pairs) {
		Map<String, Object> properties = object();
		List<String> required = new ArrayList<>();
		for (int nth = 0; nth < pairs.length; nth += 2) {
			properties.put(pairs[nth], object("type", pairs[nth + 1]));
			required.add(pairs[nth]);
		}
		return object("type", "object", "properties", properties, "required", required);
	}

	private static SyncToolSpecification tool(String name, String about, Map<String, Object> input,
			Map<String, Object> output, Tool run) {
		Map<String, Object> described = object("name", name, "description", about, "inputSchema", input);
		if (output != null) {
			described.put("outputSchema", output);
		}
		return new SyncToolSpecification(MAPPER.convertValue(described, McpSchema.Tool.class), run::call);
	}

	private static SyncToolSpecification tool(String name, String about, Tool run) {
		return tool(name, about, schema(), null, run);
	}

	private static String given(McpSchema.CallToolRequest request, String name) {
		return String.valueOf(request.arguments().get(name));
	}

	private static List<SyncToolSpecification> values() {
		Map<String, Object> number = schema("result", "integer");
		Map<String, Object> numbers = object("type", "object", "properties",
				object("result", object("type", "array", "items", object("type", "integer"))), "required",
				List.of("result"));
		Map<String, Object> mirrored = object("type", "object", "properties",
				object("region", object("type", "string", "x-mcp-header", "Region")), "required", List.of("region"));
		return List.of(
				tool("add", "Add two numbers.", schema("a", "integer", "b", "integer"), number,
						(exchange, request) -> {
							Number a = (Number) request.arguments().get("a");
							Number b = (Number) request.arguments().get("b");
							return structured(object("result", a.intValue() + b.intValue()));
						}),
				tool("greet", "Greet somebody.", schema("name", "string"), null,
						(exchange, request) -> say("Hello, " + given(request, "name"))),
				tool("forecast", "A forecast.", schema("city", "string"), schema("city", "string", "celsius", "number"),
						(exchange, request) -> structured(object("city", given(request, "city"), "celsius", 21.5))),
				tool("numbers", "Three numbers.", schema(), numbers,
						(exchange, request) -> structured(object("result", List.of(1, 2, 3)))),
				tool("region", "Say where.", mirrored, null,
						(exchange, request) -> say("Region " + given(request, "region"))),
				tool("picture", "A picture.",
						(exchange, request) -> content(object("type", "image", "data", PIXEL, "mimeType", "image/png"))),
				tool("sound", "A sound.",
						(exchange, request) -> content(object("type", "audio", "data", SILENCE, "mimeType", "audio/wav"))),
				tool("document", "A text that comes along.", (exchange, request) -> content(object("type", "resource",
						"resource", object("uri", "test://inside", "mimeType", "text/plain", "text", "Inside.")))),
				tool("link", "Where a text is.",
						(exchange, request) -> content(object("type", "resource_link", "uri", "test://text", "name", "text"))),
				tool("fail", "Fail.", (exchange, request) -> failed("It cannot be done")));
	}

	private static void report(McpSyncServerExchange exchange, McpSchema.CallToolRequest request, double step,
			double total, String words) {
		Object token = request.meta() == null ? null : request.meta().get("progressToken");
		if (token != null) {
			exchange.progressNotification(new McpSchema.ProgressNotification(token, step, total, words));
		}
	}

	private static List<SyncToolSpecification> running() {
		return List.of(tool("steps", "Three steps.", (exchange, request) -> {
			for (int step = 1; step <= 3; step++) {
				report(exchange, request, step, 3, "step " + step);
			}
			return say("done");
		}), tool("talk", "Say a word on the side.", (exchange, request) -> {
			exchange.loggingNotification(
					read(McpSchema.LoggingMessageNotification.class, "level", "info", "logger", "interop", "data", "a word"));
			return say("said");
		}), tool("wait", "Wait.", (exchange, request) -> {
			report(exchange, request, 1, 2, "waiting");
			try {
				Thread.sleep(PATIENCE.toMillis());
			}
			catch (InterruptedException error) {
				return say("was cancelled");
			}
			return say("waited to the end");
		}), tool("waited", "Nothing that waits is cancelled by this SDK.", (exchange, request) -> say("never")),
				tool("drop", "Answer; the SDK gives a tool no way to drop its stream.",
						(exchange, request) -> say("back")),
				tool("replays", "How often a client came back.", schema(), schema("result", "integer"),
						(exchange, request) -> structured(object("result", 0))),
				tool("change", "Have a tool more.", (exchange, request) -> {
					server.addTool(tool("extra", "Came later.", (other, call) -> say("extra")));
					return say("changed");
				}), tool("touch", "Change a text.", (exchange, request) -> {
					server.notifyResourcesUpdated(read(McpSchema.ResourcesUpdatedNotification.class, "uri", "test://text"));
					return say("touched");
				}));
	}

	private static List<SyncToolSpecification> questions() {
		return List.of(tool("ask_name", "Ask for a name.", (exchange, request) -> {
			Map<String, Object> form = object("type", "object", "properties",
					object("name", object("type", "string"), "polite", object("type", "boolean", "default", true)),
					"required", List.of("name"));
			Map<String, Object> answer = plain(
					exchange.createElicitation(McpSchema.ElicitRequest.builder("Who are you?", form).build()));
			if (!"accept".equals(answer.get("action"))) {
				return failed("They chose to " + answer.get("action"));
			}
			Map<String, Object> who = inside(answer, "content");
			String manner = Boolean.FALSE.equals(who.get("polite")) ? "rude" : "polite";
			return say("Hello, " + who.get("name") + ", " + manner);
		}), tool("ask_model", "Ask a model.", (exchange, request) -> {
			Map<String, Object> message = object("role", "user", "content", text("Which city?"));
			McpSchema.CreateMessageRequest asked = read(McpSchema.CreateMessageRequest.class, "messages",
					List.of(message), "maxTokens", 100);
			Map<String, Object> said = plain(exchange.createMessage(asked));
			return say("The model says: " + inside(said, "content").get("text"));
		}), tool("ask_roots", "Ask for folders.", (exchange, request) -> {
			Map<String, Object> found = plain(exchange.listRoots());
			String uris = list(found, "roots").stream().map(root -> String.valueOf(((Map<?, ?>) root).get("uri")))
				.collect(Collectors.joining(", "));
			return say("Roots: " + uris);
		}));
	}

	private static McpSchema.ReadResourceResult contents(Object... pairs) {
		return read(McpSchema.ReadResourceResult.class, "contents", List.of(object(pairs)));
	}

	private static List<SyncResourceSpecification> resources() {
		McpSchema.Resource words = read(McpSchema.Resource.class, "uri", "test://text", "name", "text", "mimeType",
				"text/plain");
		McpSchema.Resource pixel = read(McpSchema.Resource.class, "uri", "test://pixel", "name", "pixel", "mimeType",
				"image/png");
		return List.of(
				new SyncResourceSpecification(words,
						(exchange, request) -> contents("uri", request.uri(), "mimeType", "text/plain", "text", "A text.")),
				new SyncResourceSpecification(pixel,
						(exchange, request) -> contents("uri", request.uri(), "mimeType", "image/png", "blob", PIXEL)));
	}

	private static SyncResourceTemplateSpecification notes() {
		McpSchema.ResourceTemplate template = read(McpSchema.ResourceTemplate.class, "uriTemplate",
				"test://notes/{name}", "name", "note", "mimeType", "text/plain");
		return new SyncResourceTemplateSpecification(template, (exchange, request) -> {
			String name = request.uri().substring("test://notes/".length());
			return contents("uri", request.uri(), "mimeType", "text/plain", "text", "Note " + name + ".");
		});
	}

	private static McpSchema.GetPromptResult prompted(String words) {
		return read(McpSchema.GetPromptResult.class, "messages",
				List.of(object("role", "user", "content", text(words))));
	}

	private static List<SyncPromptSpecification> prompts() {
		McpSchema.Prompt hello = read(McpSchema.Prompt.class, "name", "hello", "description", "Say hello.");
		McpSchema.Prompt review = read(McpSchema.Prompt.class, "name", "review", "description", "Review some code.",
				"arguments", List.of(object("name", "code", "required", true), object("name", "language")));
		return List.of(new SyncPromptSpecification(hello, (exchange, request) -> prompted("Say hello.")),
				new SyncPromptSpecification(review, (exchange, request) -> {
					Map<String, Object> given = request.arguments() == null ? Map.of() : request.arguments();
					Object language = given.getOrDefault("language", "python");
					return prompted("Review this " + language + ": " + given.get("code"));
				}));
	}

	private static SyncCompletionSpecification completion(Object... reference) {
		McpSchema.CompleteReference about = "ref/prompt".equals(reference[1])
				? read(McpSchema.PromptReference.class, reference) : read(McpSchema.ResourceReference.class, reference);
		return new SyncCompletionSpecification(about, (exchange, request) -> {
			List<String> values = LANGUAGES.stream().filter(one -> one.startsWith(request.argument().value())).toList();
			return read(McpSchema.CompleteResult.class, "completion", object("values", values, "hasMore", false));
		});
	}

	private static McpSyncServer build(McpServer.SyncSpecification<?> making) {
		return making.serverInfo("equivalent", "1.0")
			.instructions("Everything that a client can ask for.")
			.capabilities(read(McpSchema.ServerCapabilities.class, "tools", object("listChanged", true), "resources",
					object("subscribe", true, "listChanged", false), "prompts", object("listChanged", false),
					"completions", object(), "logging", object()))
			.tools(values())
			.tools(running())
			.tools(questions())
			.resources(resources())
			.resourceTemplates(notes())
			.prompts(prompts())
			.completions(completion("type", "ref/prompt", "name", "review"),
					completion("type", "ref/resource", "uri", "test://notes/{name}"))
			.build();
	}

	static void serve(String way) throws Exception {
		if (way.equals("stdio")) {
			server = build(McpServer.sync(new StdioServerTransportProvider(MAPPER)));
			return; // its threads go on until the input ends
		}
		HttpServletStreamableServerTransportProvider servlet = HttpServletStreamableServerTransportProvider.builder()
			.jsonMapper(MAPPER)
			.mcpEndpoint("/mcp")
			.build();
		server = build(McpServer.sync(servlet));
		java.util.logging.LogManager.getLogManager().reset();
		Tomcat tomcat = new Tomcat();
		File folder = java.nio.file.Files.createTempDirectory("interop").toFile();
		tomcat.setBaseDir(folder.getPath());
		tomcat.setHostname("127.0.0.1");
		tomcat.setPort(0);
		tomcat.getConnector().setProperty("address", "127.0.0.1");
		Context context = tomcat.addContext("", folder.getPath());
		Tomcat.addServlet(context, "mcp", servlet).setAsyncSupported(true);
		context.addServletMappingDecoded("/*", "mcp");
		tomcat.start();
		System.out.println("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + "/mcp");
		System.out.flush();
		tomcat.getServer().await();
	}
}
