// The official Go SDK as a client of the everything-server; with `steps` in its spec, of any server.
//
// Rules: judges nothing; what was seen is in the words of the wire.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	modern   = "2026-07-28"
	scenario = 30 * time.Second
	large    = 400_000
	atOnce   = 20
	watched  = "test://watched-resource"
	folder   = "file:///projects/interop"
	updated  = "notifications/resources/updated"
	changed  = "notifications/tools/list_changed"
	// The SDK sends the end of a subscription in the background.
	unsubscribed = 200 * time.Millisecond
)

// What the user types into a field of this name; a field that is not here is left out.
var typed = map[string]any{
	"username": "ada", "email": "ada@example.com", "name": "Ada", "age": 36, "ok": true, "value": true,
	"color": "green", "context": "interop", "untitledSingle": "option2", "titledSingle": "value2",
	"legacyEnum": "opt2", "untitledMulti": []string{"option1", "option3"},
	"titledMulti": []string{"value1", "value3"},
}

// The SDK answers these by itself, and tells nobody that it was asked.
var unseen = []string{"roots/list"}

type object = map[string]any

type specification struct {
	Era      string   `json:"era"`
	HTTP     string   `json:"http"`
	SSE      string   `json:"sse"`
	Stdio    []string `json:"stdio"`
	LeaveOut []string `json:"leave_out"`
	Steps    []step   `json:"steps"`
}

type step struct {
	Scenario string          `json:"scenario"`
	Do       string          `json:"do"`
	Params   json.RawMessage `json:"params"`
	Progress int             `json:"progress"`
}

func (spec specification) transport() mcp.Transport {
	switch {
	case spec.HTTP != "":
		return &mcp.StreamableClientTransport{Endpoint: spec.HTTP}
	case spec.SSE != "":
		return &mcp.SSEClientTransport{Endpoint: spec.SSE}
	}
	command := exec.Command(spec.Stdio[0], spec.Stdio[1:]...)
	command.Stderr = os.Stderr
	return &mcp.CommandTransport{Command: command}
}

type driver struct {
	spec    specification
	session *mcp.ClientSession

	lock      sync.Mutex
	heard     *sync.Cond
	questions []any
	notices   [][]any
	logs      []any
	progress  map[string][]any
}

// A session of the era; can it be asked anything?
func connect(ctx context.Context, spec specification, options *mcp.ClientOptions) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, options)
	if options.CreateMessageHandler != nil {
		client.AddRoots(&mcp.Root{URI: folder, Name: "interop"})
	}
	return client.Connect(ctx, spec.transport(), &mcp.ClientSessionOptions{ProtocolVersion: spec.Era})
}

func (d *driver) options() *mcp.ClientOptions {
	capabilities := &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}
	if d.spec.Era >= "2025-11-25" {
		capabilities.Elicitation = &mcp.ElicitationCapabilities{
			Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{},
		}
	}
	return &mcp.ClientOptions{
		Capabilities: capabilities,
		ElicitationHandler: func(_ context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			d.ask("elicitation/create", request.Params)
			if strings.Contains(request.Params.Message, "decline") {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}
			content := object{}
			for name, field := range fields(request.Params.RequestedSchema) {
				if value, known := typed[name]; known {
					content[name] = written(value, field)
				}
			}
			if request.Params.Mode == "url" {
				content = nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
		CreateMessageHandler: func(_ context.Context, request *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			d.ask("sampling/createMessage", request.Params)
			said := &mcp.TextContent{Text: "Paris, of course"}
			return &mcp.CreateMessageResult{Role: "assistant", Content: said, Model: "interop"}, nil
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			d.hear(func() { d.notices = append(d.notices, []any{changed, nil}) })
		},
		ResourceUpdatedHandler: func(_ context.Context, request *mcp.ResourceUpdatedNotificationRequest) {
			d.hear(func() { d.notices = append(d.notices, []any{updated, request.Params.URI}) })
		},
		LoggingMessageHandler: func(_ context.Context, request *mcp.LoggingMessageRequest) {
			d.hear(func() { d.logs = append(d.logs, request.Params) })
		},
		ProgressNotificationHandler: func(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
			step := request.Params
			d.hear(func() {
				token := fmt.Sprint(step.ProgressToken)
				d.progress[token] = append(d.progress[token], []any{step.Progress, step.Total, step.Message})
			})
		},
	}
}

func fields(schema any) object {
	var form struct {
		Properties object `json:"properties"`
	}
	text, _ := json.Marshal(schema)
	_ = json.Unmarshal(text, &form)
	return form.Properties
}

// What is typed where there are no lists: their values, separated by commas.
func written(value, field any) any {
	values, isList := value.([]string)
	if kind, _ := field.(object)["type"].(string); isList && kind == "string" {
		return strings.Join(values, ", ")
	}
	return value
}

func (d *driver) hear(keep func()) {
	d.lock.Lock()
	defer d.lock.Unlock()
	keep()
	d.heard.Broadcast()
}

func (d *driver) ask(method string, params any) {
	d.hear(func() { d.questions = append(d.questions, object{"method": method, "params": params}) })
}

// Wait for something that is said to us; the scenario as a whole has a time limit.
func (d *driver) until(isTrue func() bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for !isTrue() {
		d.heard.Wait()
	}
}

func (d *driver) count(method string) (found int) {
	for _, notice := range d.notices {
		if notice[0] == method {
			found++
		}
	}
	return found
}

func (d *driver) call(ctx context.Context, name string, arguments object) (*mcp.CallToolResult, error) {
	return d.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
}

// A result, or the error that came instead of one.
func (d *driver) callOrRefusal(ctx context.Context, name string, arguments object) (any, error) {
	result, err := d.call(ctx, name, arguments)
	if err != nil {
		return refusal(err)
	}
	return result, nil
}

// The results of several calls, each under its name.
func (d *driver) calls(ctx context.Context, wanted map[string]*mcp.CallToolParams) (any, error) {
	seen := object{}
	for name, params := range wanted {
		result, err := d.session.CallTool(ctx, params)
		if err != nil {
			return nil, err
		}
		seen[name] = result
	}
	return seen, nil
}

func (d *driver) asked(ctx context.Context, name string, arguments object) (any, error) {
	d.hear(func() { d.questions = []any{} })
	result, err := d.call(ctx, name, arguments)
	return object{"result": result, "questions": d.questions, "unseen": unseen}, err
}

func refusal(err error) (any, error) {
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) {
		return nil, fmt.Errorf("no error of the server, but %w", err)
	}
	return object{"code": refused.Code, "message": refused.Message, "data": refused.Data}, nil
}

// ---------------------------------------------------------------- the scenarios

type play func(context.Context, *driver) (any, error)

func calling(name string, arguments object) play {
	return func(ctx context.Context, d *driver) (any, error) { return d.call(ctx, name, arguments) }
}

func asking(name string, arguments object) play {
	return func(ctx context.Context, d *driver) (any, error) { return d.asked(ctx, name, arguments) }
}

func meet(_ context.Context, d *driver) (any, error) {
	said := d.session.InitializeResult()
	return object{
		"revision": said.ProtocolVersion, "server": said.ServerInfo,
		"instructions": said.Instructions, "capabilities": said.Capabilities,
	}, nil
}

func lists(ctx context.Context, d *driver) (any, error) {
	tools, err := d.session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	resources, err := d.session.ListResources(ctx, nil)
	if err != nil {
		return nil, err
	}
	templates, err := d.session.ListResourceTemplates(ctx, nil)
	if err != nil {
		return nil, err
	}
	prompts, err := d.session.ListPrompts(ctx, nil)
	if err != nil {
		return nil, err
	}
	return object{
		"tools": tools.Tools, "resources": resources.Resources,
		"templates": templates.ResourceTemplates, "prompts": prompts.Prompts,
	}, nil
}

func content(ctx context.Context, d *driver) (any, error) {
	wanted := map[string]*mcp.CallToolParams{}
	for _, name := range []string{"image_content", "audio_content", "embedded_resource", "multiple_content_types"} {
		wanted[name] = &mcp.CallToolParams{Name: "test_" + name}
	}
	return d.calls(ctx, wanted)
}

func structured(ctx context.Context, d *driver) (any, error) {
	return d.calls(ctx, map[string]*mcp.CallToolParams{
		"object": {Name: "test_structured_content", Arguments: object{"place": "Turin"}},
		"list":   {Name: "test_structured_list"},
	})
}

func rawSchema(ctx context.Context, d *driver) (any, error) {
	contact := object{"name": "Ada", "contactMethod": "email", "email": "ada@example.com"}
	fits, err := d.call(ctx, "json_schema_2020_12_tool", contact)
	if err != nil {
		return nil, err
	}
	doesNot, err := d.callOrRefusal(ctx, "json_schema_2020_12_tool", object{"name": "Ada"})
	return object{"fits": fits, "does not": doesNot}, err
}

func placeOf(result *mcp.CallToolResult) string {
	said, _ := result.StructuredContent.(object)
	name, _ := said["place"].(string)
	return name
}

func largeOne(ctx context.Context, d *driver) (any, error) {
	result, err := d.call(ctx, "test_structured_content", object{"place": strings.Repeat("x", large)})
	if err != nil {
		return nil, err
	}
	return []int{len(words(result.Content...)), len(placeOf(result))}, nil
}

func manyAtOnce(ctx context.Context, d *driver) (any, error) {
	var group sync.WaitGroup
	seen := object{}
	for nth := range atOnce {
		group.Go(func() {
			name := fmt.Sprint(nth)
			result, err := d.call(ctx, "test_structured_content", object{"place": name})
			d.lock.Lock()
			defer d.lock.Unlock()
			if err != nil {
				seen[name] = err.Error()
			} else {
				seen[name] = placeOf(result)
			}
		})
	}
	group.Wait()
	return seen, nil
}

func unknownTool(ctx context.Context, d *driver) (any, error) {
	_, err := d.call(ctx, "no_such_tool", nil)
	return refusal(err)
}

func badArgument(ctx context.Context, d *driver) (any, error) {
	return d.callOrRefusal(ctx, "test_structured_content", object{"place": 7})
}

func read(ctx context.Context, d *driver) (any, error) {
	var seen []any
	for _, uri := range []string{"test://static-text", "test://static-binary", "test://template/42/data"} {
		result, err := d.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return nil, err
		}
		seen = append(seen, result.Contents)
	}
	return seen, nil
}

func unknownResource(ctx context.Context, d *driver) (any, error) {
	_, err := d.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://nowhere"})
	return refusal(err)
}

func prompts(ctx context.Context, d *driver) (any, error) {
	seen := object{}
	for key, params := range map[string]*mcp.GetPromptParams{
		"words": {Name: "test_prompt_with_arguments", Arguments: map[string]string{"arg1": "one", "arg2": "two"}},
		"image": {Name: "test_prompt_with_image"},
		"resource": {
			Name:      "test_prompt_with_embedded_resource",
			Arguments: map[string]string{"resourceUri": "test://shown"},
		},
	} {
		result, err := d.session.GetPrompt(ctx, params)
		if err != nil {
			return nil, err
		}
		seen[key] = result
	}
	return seen, nil
}

func promptAsks(ctx context.Context, d *driver) (any, error) {
	d.hear(func() { d.questions = []any{} })
	result, err := d.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: "test_input_required_result_prompt"})
	return object{"result": result, "questions": d.questions}, err
}

func completes(ctx context.Context, d *driver) (any, error) {
	return d.session.Complete(ctx, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "test_prompt_with_arguments"},
		Argument: mcp.CompleteParamsArgument{Name: "arg1", Value: "test"},
	})
}

func progresses(ctx context.Context, d *driver) (any, error) {
	params := &mcp.CallToolParams{Name: "test_tool_with_progress", Meta: mcp.Meta{"progressToken": "steps"}}
	result, err := d.session.CallTool(ctx, params)
	if err != nil {
		return nil, err
	}
	d.until(func() bool { return len(d.progress["steps"]) >= 3 })
	return object{"steps": d.progress["steps"], "result": result}, nil
}

func logs(ctx context.Context, d *driver) (any, error) {
	params := &mcp.CallToolParams{Name: "test_logging_tool"}
	if d.spec.Era == modern {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
	} else if err := d.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		return nil, err
	}
	result, err := d.session.CallTool(ctx, params)
	if err != nil {
		return nil, err
	}
	d.until(func() bool { return len(d.logs) >= 2 })
	return object{"logs": d.logs, "result": result}, nil
}

// Another client of the same kind, which cannot be asked anything.
func unable(ctx context.Context, d *driver) (any, error) {
	other, err := connect(ctx, d.spec, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	if err != nil {
		return nil, err
	}
	defer other.Close()
	result, err := other.CallTool(ctx, &mcp.CallToolParams{Name: "test_missing_capability"})
	if err != nil {
		refused, err := refusal(err)
		return object{"error": refused}, err
	}
	return object{"result": result}, nil
}

// Hear of a change; leave; change it again, and something else: only that is heard.
func subscribes(ctx context.Context, d *driver) (any, error) {
	d.hear(func() { d.notices = [][]any{} })
	if err := d.session.Subscribe(ctx, &mcp.SubscribeParams{URI: watched}); err != nil {
		return nil, err
	}
	if _, err := d.call(ctx, "test_trigger_resource_update", nil); err != nil {
		return nil, err
	}
	d.until(func() bool { return d.count(updated) >= 1 })
	if err := d.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: watched}); err != nil {
		return nil, err
	}
	time.Sleep(unsubscribed)
	if _, err := d.call(ctx, "test_trigger_resource_update", nil); err != nil {
		return nil, err
	}
	if _, err := d.call(ctx, "test_trigger_tool_change", nil); err != nil {
		return nil, err
	}
	d.until(func() bool { return d.count(changed) >= 1 })
	tools, err := d.session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := d.call(ctx, "test_trigger_tool_change", nil); err != nil {
		return nil, err
	}
	d.until(func() bool { return d.count(changed) >= 2 })
	isNew := slices.ContainsFunc(tools.Tools, func(one *mcp.Tool) bool { return one.Name == "test_fleeting_tool" })
	return object{"notices": d.notices, "new tool": isNew}, nil
}

// Cancel a call that is known to run; the server says when its handler has ended.
func cancels(ctx context.Context, d *driver) (any, error) {
	ticket := object{"ticket": fmt.Sprintf("go %s %d", d.spec.Era, os.Getpid())}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := []any{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		params := &mcp.CallToolParams{
			Name: "test_until_cancelled", Arguments: ticket, Meta: mcp.Meta{"progressToken": "running"},
		}
		if result, err := d.session.CallTool(running, params); err == nil {
			answered = append(answered, result)
		}
	}()
	d.until(func() bool { return len(d.progress["running"]) >= 1 })
	cancel()
	<-done
	result, err := d.call(ctx, "test_cancelled", ticket)
	return object{"server": result, "answered": answered}, err
}

func ping(ctx context.Context, d *driver) (any, error) {
	return object{}, d.session.Ping(ctx, nil)
}

var plays = []struct {
	name string
	run  play
}{
	{"meet", meet},
	{"list", lists},
	{"call", calling("test_simple_text", nil)},
	{"content", content},
	{"structured", structured},
	{"raw schema", rawSchema},
	{"mirrored header", calling("test_x_mcp_header", object{"region": "Zürich, west"})},
	{"large", largeOne},
	{"at once", manyAtOnce},
	{"tool error", calling("test_error_handling", nil)},
	{"unknown tool", unknownTool},
	{"bad argument", badArgument},
	{"read", read},
	{"unknown resource", unknownResource},
	{"prompt", prompts},
	{"prompt that asks", promptAsks},
	{"complete", completes},
	{"progress", progresses},
	{"logging", logs},
	{"elicit", asking("test_elicitation", object{"message": "Who are you?"})},
	{"elicit, declined", asking("test_elicitation", object{"message": "You may decline"})},
	{"elicit, defaults", asking("test_elicitation_sep1034_defaults", nil)},
	{"elicit, choices", asking("test_elicitation_sep1330_enums", nil)},
	{"elicit, url", asking("test_elicitation_url", nil)},
	{"elicit, twice", asking("test_input_required_result_multi_round", nil)},
	{"elicit, streaming", asking("test_streaming_elicitation", nil)},
	{"sample", asking("test_sampling", object{"prompt": "Which city?"})},
	{"roots", asking("test_input_required_result_list_roots", nil)},
	{"ask together", asking("test_input_required_result_multiple_inputs", nil)},
	{"ask the unable", unable},
	{"subscribe", subscribes},
	{"cancel", cancels},
	{"reconnect", calling("test_reconnection", nil)},
	{"ping", ping},
}

// ---------------------------------------------------------------- steps of a spec

// A request with the params of a step, and what came of it.
func request[P, R any](ctx context.Context, params json.RawMessage, send func(context.Context, *P) (R, error)) (any, error) {
	wanted := new(P)
	if err := json.Unmarshal(params, wanted); err != nil {
		return nil, err
	}
	result, err := send(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// A result or an error, with the questions and the progress that came before it.
func (wanted step) run(ctx context.Context, d *driver) (any, error) {
	token := wanted.Scenario
	d.hear(func() { d.questions = []any{} })
	var result any
	var err error
	switch wanted.Do {
	case "meet":
		return meet(ctx, d)
	case "list":
		return lists(ctx, d)
	case "call":
		result, err = request(ctx, wanted.Params, func(ctx context.Context, params *mcp.CallToolParams) (any, error) {
			params.Meta = mcp.Meta{"progressToken": token}
			return d.session.CallTool(ctx, params)
		})
	case "read":
		result, err = request(ctx, wanted.Params, d.session.ReadResource)
	case "prompt":
		result, err = request(ctx, wanted.Params, d.session.GetPrompt)
	case "complete":
		result, err = request(ctx, wanted.Params, d.session.Complete)
	default:
		return nil, fmt.Errorf("there is no step %s", wanted.Do)
	}
	d.until(func() bool { return len(d.progress[token]) >= wanted.Progress })
	d.lock.Lock()
	defer d.lock.Unlock()
	seen := object{"questions": d.questions, "steps": d.progress[token], "unseen": unseen}
	if err == nil {
		seen["result"] = result
	} else if seen["error"], err = refusal(err); err != nil {
		return nil, err
	}
	return seen, nil
}

// ---------------------------------------------------------------- the run

func tell(line object) {
	fmt.Println(string(must(json.Marshal(line))))
}

func attempt(d *driver, name string, run play) {
	ctx, cancel := context.WithTimeout(context.Background(), scenario)
	defer cancel()
	told := make(chan object, 1)
	go func() {
		seen, err := run(ctx, d)
		if err != nil {
			told <- object{"scenario": name, "failed": err.Error()}
		} else {
			told <- object{"scenario": name, "seen": seen}
		}
	}()
	select {
	case line := <-told:
		tell(line)
	case <-time.After(scenario + time.Second):
		tell(object{"scenario": name, "failed": "took too long"})
	}
}

func drive(text string) {
	var spec specification
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		log.Fatal(err)
	}
	d := &driver{spec: spec, progress: map[string][]any{}}
	d.heard = sync.NewCond(&d.lock)
	d.session = must(connect(context.Background(), spec, d.options()))
	for _, one := range spec.Steps {
		attempt(d, one.Scenario, one.run)
	}
	for _, one := range plays {
		if len(spec.Steps) == 0 && !slices.Contains(spec.LeaveOut, one.name) {
			attempt(d, one.name, one.run)
		}
	}
	if err := d.session.Close(); err != nil {
		log.Fatal(err)
	}
	tell(object{"scenario": "leave", "seen": "left"})
}
