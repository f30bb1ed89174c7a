package interop;

import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Things of the protocol in the words of the wire, and back. */
final class Wire {
	static final McpJsonMapper MAPPER = McpJsonDefaults.getMapper();

	/** An object: names and values in turn. */
	static Map<String, Object> object(Object... pairs) {
		Map<String, Object> made = new LinkedHashMap<>();
		for (int nth = 0; nth < pairs.length; nth += 2) {
			made.put((String) pairs[nth], pairs[nth + 1]);
		}
		return made;
	}

	static <T> T read(Class<T> kind, Object... pairs) {
		return MAPPER.convertValue(object(pairs), kind);
	}

	@SuppressWarnings("unchecked")
	static Map<String, Object> plain(Object thing) {
		try {
			return MAPPER.readValue(MAPPER.writeValueAsString(thing), Map.class);
		}
		catch (IOException error) {
			throw new IllegalStateException(error);
		}
	}

	static Map<String, Object> text(String words) {
		return object("type", "text", "text", words);
	}

	@SuppressWarnings("unchecked")
	static Map<String, Object> inside(Map<String, Object> thing, String name) {
		Object found = thing.get(name);
		return found instanceof Map ? (Map<String, Object>) found : Map.of();
	}

	@SuppressWarnings("unchecked")
	static List<Object> list(Map<String, Object> thing, String name) {
		Object found = thing.get(name);
		return found instanceof List ? (List<Object>) found : List.of();
	}
}
