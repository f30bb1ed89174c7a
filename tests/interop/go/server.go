// The things of a server on the official Go SDK, by its public API.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	instructions = "Everything that a client can ask for."
	// A call that is not cancelled by then never will be.
	patience = 20 * time.Second
)

var (
	pixel, _ = base64.StdEncoding.DecodeString(
		"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
	silence, _ = base64.StdEncoding.DecodeString("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=")
	languages  = []string{"pascal", "python", "go"}
)

type none struct{}

type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

type named struct {
	Name string `json:"name"`
}

type place struct {
	City string `json:"city"`
}

type region struct {
	Region string `json:"region"`
}

type sum struct {
	Result int `json:"result"`
}

type list struct {
	Result []int `json:"result"`
}

type forecast struct {
	City    string  `json:"city"`
	Celsius float64 `json:"celsius"`
}

func say(words string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}
}

// A tool whose result is content alone.
func tool[In any](
	server *mcp.Server, name, about string,
	run func(context.Context, *mcp.CallToolRequest, In) (*mcp.CallToolResult, error),
) {
	mcp.AddTool(server, &mcp.Tool{Name: name, Description: about},
		func(ctx context.Context, request *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			result, err := run(ctx, request, in)
			return result, nil, err
		})
}

// A tool that answers always the same.
func fixed(server *mcp.Server, name, about string, content mcp.Content) {
	tool(server, name, about,
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{content}}, nil
		})
}

// Events that are kept for a client that comes back, and how often one came.
type events struct {
	*mcp.MemoryEventStore
	replays atomic.Int64
}

func (kept *events) After(ctx context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	if index >= 0 { // else it is the first time that the stream is opened
		kept.replays.Add(1)
	}
	return kept.MemoryEventStore.After(ctx, session, stream, index)
}

func build(way string, kept *events) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "equivalent", Version: "1.0"}, &mcp.ServerOptions{
		Instructions:       instructions,
		CompletionHandler:  complete,
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	addValues(server)
	addRunning(server, way, kept)
	addQuestions(server)
	addResources(server)
	addPrompts(server)
	return server
}

func addValues(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two numbers."},
		func(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, sum, error) {
			return nil, sum{in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "numbers", Description: "Three numbers."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, list, error) {
			return nil, list{[]int{1, 2, 3}}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "forecast", Description: "A forecast."},
		func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, forecast, error) {
			return nil, forecast{in.City, 21.5}, nil
		})
	tool(server, "greet", "Greet somebody.",
		func(_ context.Context, _ *mcp.CallToolRequest, in named) (*mcp.CallToolResult, error) {
			return say("Hello, " + in.Name), nil
		})
	fixed(server, "picture", "A picture.", &mcp.ImageContent{Data: pixel, MIMEType: "image/png"})
	fixed(server, "sound", "A sound.", &mcp.AudioContent{Data: silence, MIMEType: "audio/wav"})
	inside := &mcp.ResourceContents{URI: "test://inside", MIMEType: "text/plain", Text: "Inside."}
	fixed(server, "document", "A text that comes along.", &mcp.EmbeddedResource{Resource: inside})
	fixed(server, "link", "Where a text is.", &mcp.ResourceLink{URI: "test://text", Name: "text"})
	tool(server, "fail", "Fail.",
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
			return nil, errors.New("It cannot be done")
		})
	mirrored := &jsonschema.Schema{Type: "string", Extra: map[string]any{"x-mcp-header": "Region"}}
	where := &jsonschema.Schema{
		Type:       "object",
		Properties: map[string]*jsonschema.Schema{"region": mirrored},
		Required:   []string{"region"},
	}
	mcp.AddTool(server, &mcp.Tool{Name: "region", Description: "Say where.", InputSchema: where},
		func(_ context.Context, _ *mcp.CallToolRequest, in region) (*mcp.CallToolResult, any, error) {
			return say("Region " + in.Region), nil, nil
		})
}

func report(ctx context.Context, request *mcp.CallToolRequest, step, total float64, words string) error {
	token := request.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: step, Total: total, Message: words,
	})
}

func addRunning(server *mcp.Server, way string, kept *events) {
	tool(server, "steps", "Three steps.",
		func(ctx context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			for step := 1; step <= 3; step++ {
				if err := report(ctx, request, float64(step), 3, fmt.Sprintf("step %d", step)); err != nil {
					return nil, err
				}
			}
			return say("done"), nil
		})
	tool(server, "talk", "Say a word on the side.",
		func(ctx context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			err := request.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "a word"})
			return say("said"), err
		})
	ended := make(chan string, 8)
	tool(server, "wait", "Wait to be cancelled.",
		func(ctx context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			if err := report(ctx, request, 1, 2, "waiting"); err != nil {
				return nil, err
			}
			select {
			case <-ctx.Done():
				ended <- "was cancelled"
				return nil, ctx.Err()
			case <-time.After(patience):
				ended <- "waited to the end"
				return say("waited to the end"), nil
			}
		})
	tool(server, "waited", "How the last call that waited has ended.",
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
			select {
			case how := <-ended:
				return say(how), nil
			case <-time.After(patience):
				return say("never began"), nil
			}
		})
	tool(server, "drop", "Drop the stream, and answer to a client that comes back for it.",
		func(_ context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			// Before that date a stream has no event yet from which a client could resume it.
			date := request.Session.InitializeParams().ProtocolVersion
			if way == "http" && date == "2025-11-25" && request.Extra != nil && request.Extra.CloseSSEStream != nil {
				request.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
			}
			time.Sleep(100 * time.Millisecond)
			return say("back"), nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "replays", Description: "How often a client came back."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, sum, error) {
			return nil, sum{int(kept.replays.Load())}, nil
		})
	tool(server, "change", "Have a tool more.",
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
			fixed(server, "extra", "Came later.", &mcp.TextContent{Text: "extra"})
			return say("changed"), nil
		})
	tool(server, "touch", "Change a text.",
		func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "test://text"})
			return say("touched"), err
		})
}

func ask(request mcp.InputRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"answer": request}}, nil
}

func addQuestions(server *mcp.Server) {
	tool(server, "ask_name", "Ask for a name.",
		func(_ context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			answer, ok := request.Params.InputResponses["answer"].(*mcp.ElicitResult)
			if !ok {
				form := &jsonschema.Schema{
					Type: "object",
					Properties: map[string]*jsonschema.Schema{
						"name":   {Type: "string"},
						"polite": {Type: "boolean", Default: json.RawMessage("true")},
					},
					Required: []string{"name"},
				}
				return ask(&mcp.ElicitParams{Message: "Who are you?", RequestedSchema: form})
			}
			if answer.Action != "accept" {
				return nil, fmt.Errorf("They chose to %s", answer.Action)
			}
			manner := "polite"
			if polite, given := answer.Content["polite"].(bool); given && !polite {
				manner = "rude"
			}
			return say(fmt.Sprintf("Hello, %v, %s", answer.Content["name"], manner)), nil
		})
	tool(server, "ask_model", "Ask a model.",
		func(_ context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			switch answer := request.Params.InputResponses["answer"].(type) {
			case *mcp.CreateMessageResult:
				return say("The model says: " + words(answer.Content)), nil
			case *mcp.CreateMessageWithToolsResult:
				return say("The model says: " + words(answer.Content...)), nil
			}
			question := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: "Which city?"}}
			return ask(&mcp.CreateMessageParams{Messages: []*mcp.SamplingMessage{question}, MaxTokens: 100})
		})
	tool(server, "ask_roots", "Ask for folders.",
		func(_ context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
			answer, ok := request.Params.InputResponses["answer"].(*mcp.ListRootsResult)
			if !ok {
				return ask(&mcp.ListRootsParams{})
			}
			var uris []string
			for _, root := range answer.Roots {
				uris = append(uris, root.URI)
			}
			return say("Roots: " + strings.Join(uris, ", ")), nil
		})
}

func words(content ...mcp.Content) string {
	for _, block := range content {
		if text, ok := block.(*mcp.TextContent); ok {
			return text.Text
		}
	}
	return ""
}

func addResources(server *mcp.Server) {
	add := func(contents *mcp.ResourceContents, name string) {
		resource := &mcp.Resource{URI: contents.URI, Name: name, MIMEType: contents.MIMEType}
		server.AddResource(resource,
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
			})
	}
	add(&mcp.ResourceContents{URI: "test://text", MIMEType: "text/plain", Text: "A text."}, "text")
	add(&mcp.ResourceContents{URI: "test://pixel", MIMEType: "image/png", Blob: pixel}, "pixel")
	notes := &mcp.ResourceTemplate{URITemplate: "test://notes/{name}", Name: "note", MIMEType: "text/plain"}
	server.AddResourceTemplate(notes,
		func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			uri := request.Params.URI
			text := fmt.Sprintf("Note %s.", strings.TrimPrefix(uri, "test://notes/"))
			note := &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: text}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{note}}, nil
		})
}

func addPrompts(server *mcp.Server) {
	said := func(words string) *mcp.GetPromptResult {
		message := &mcp.PromptMessage{Role: "user", Content: &mcp.TextContent{Text: words}}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{message}}
	}
	server.AddPrompt(&mcp.Prompt{Name: "hello", Description: "Say hello."},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return said("Say hello."), nil
		})
	arguments := []*mcp.PromptArgument{{Name: "code", Required: true}, {Name: "language"}}
	server.AddPrompt(&mcp.Prompt{Name: "review", Description: "Review some code.", Arguments: arguments},
		func(_ context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			given := request.Params.Arguments
			language := given["language"]
			if language == "" {
				language = "python"
			}
			return said(fmt.Sprintf("Review this %s: %s", language, given["code"])), nil
		})
}

func complete(_ context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	for _, language := range languages {
		if strings.HasPrefix(language, request.Params.Argument.Value) {
			values = append(values, language)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values}}, nil
}

func serve(way string) {
	kept := &events{MemoryEventStore: mcp.NewMemoryEventStore(nil)}
	server := build(way, kept)
	if way == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	handler := func(options *mcp.StreamableHTTPOptions) http.Handler {
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	}
	options := &mcp.StreamableHTTPOptions{JSONResponse: way == "json", Stateless: way == "stateless"}
	if way == "http" {
		options.EventStore = kept
	}
	// The SDK speaks the newest revision without sessions alone, and the others best with them.
	newest, older := handler(&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}), handler(options)
	http.HandleFunc("/mcp", func(answer http.ResponseWriter, request *http.Request) {
		if way == "http" && request.Header.Get("Mcp-Protocol-Version") == modern {
			newest.ServeHTTP(answer, request)
		} else {
			older.ServeHTTP(answer, request)
		}
	})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
