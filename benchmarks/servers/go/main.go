// The server of the benchmarks on the official Go SDK.
//
//	server http | http-stream | session | session-stream | stdio | one [TOOLS]
//
// `http` keeps nothing, `session` has sessions; they answer in JSON, or in event streams. `one` is
// stdio with one tool.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const total = 10

type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

type text struct {
	Text string `json:"text"`
}

type place struct {
	City string `json:"city"`
	Days int    `json:"days,omitempty"`
}

type none struct{}

type number struct {
	Result int `json:"result"`
}

type words struct {
	Result string `json:"result"`
}

func say(said string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}
}

func add(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, number, error) {
	sum := in.A + in.B
	return say(strconv.Itoa(sum)), number{sum}, nil
}

func steps(ctx context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, words, error) {
	token := request.Params.GetProgressToken()
	for step := 1; step <= total; step++ {
		progress := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(step), Total: total}
		if err := request.Session.NotifyProgress(ctx, progress); err != nil {
			return nil, words{}, err
		}
	}
	return say("done"), words{"done"}, nil
}

func build(way string, more int) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two numbers."}, add)
	if way == "one" {
		return server
	}
	blob := strings.Repeat("x", 1024*1024)
	mcp.AddTool(server, &mcp.Tool{Name: "add_sync", Description: "Add two numbers."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "length", Description: "How long a text is."},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, number, error) {
			return say(strconv.Itoa(len(in.Text))), number{len(in.Text)}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "blob", Description: "A mebibyte."},
		func(_ context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, words, error) {
			return say(blob), words{blob}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "steps", Description: "Ten steps, each reported."}, steps)
	for nth := range more {
		tool := &mcp.Tool{
			Name:        fmt.Sprintf("tool_%05d", nth),
			Description: "The highest temperatures of the coming days.",
		}
		mcp.AddTool(server, tool,
			func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, words, error) {
				said := fmt.Sprintf("%s: %d", in.City, in.Days)
				return say(said), words{said}, nil
			})
	}
	return server
}

func main() {
	way, more := os.Args[1], 0
	if len(os.Args) > 2 {
		more, _ = strconv.Atoi(os.Args[2])
	}
	server := build(way, more)
	if way == "stdio" || way == "one" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Print(err)
		}
		return
	}
	handler := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{
			JSONResponse: !strings.Contains(way, "stream"),
			Stateless:    strings.Contains(way, "http"),
		},
	)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	log.Fatal(http.Serve(listener, mux))
}
