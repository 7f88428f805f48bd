// SPDX-License-Identifier: MIT

// Clients makes one call with a client library at one setting, and prints what its user sees:
//
//	clients LIBRARY SETTING METHOD URL KEY
//
// SETTING is "default", or a number of retries. METHOD is one of MCP; the other libraries ignore it. "clients serve
// ADDRESS" serves MCP. Its tool "slow" ends when the client disconnects.
//
// The libraries are in a module of their own because no other part of Diana may depend on them.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/genai"
)

// call is a call that a library makes. A negative number of retries means the library's default.
type call struct {
	retries          int
	method, url, key string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fmt.Fprintln(os.Stderr, serve(os.Args[2]))
		os.Exit(1)
	}
	answer, err := run(context.Background(), os.Args[1:])
	if err != nil {
		answer = err.Error()
	}
	fmt.Println(answer)
}

func run(ctx context.Context, args []string) (string, error) {
	if len(args) != 5 {
		return "", errors.New("usage: clients LIBRARY SETTING METHOD URL KEY")
	}
	library, found := map[string]func(context.Context, call) (string, error){
		"openai": openAI, "anthropic": anthropicMessages, "genai": gemini, "mcp": callMCP,
	}[args[0]]
	if !found {
		return "", fmt.Errorf("no library %s", args[0])
	}
	c := call{-1, args[2], args[3], args[4]}
	if args[1] != "default" {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return "", err
		}
		c.retries = n
	}
	return library(ctx, c)
}

func openAI(ctx context.Context, c call) (string, error) {
	options := []option.RequestOption{option.WithBaseURL(c.url + "/v1"), option.WithAPIKey(c.key)}
	if c.retries >= 0 {
		options = append(options, option.WithMaxRetries(c.retries))
	}
	client := openai.NewClient(options...)
	answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "small", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	if known, ok := errors.AsType[*openai.Error](err); ok {
		return "", fmt.Errorf("%w; its Message is %s", err, known.Message) // the text of the error has a status alone
	}
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

func anthropicMessages(ctx context.Context, c call) (string, error) {
	options := []anthropicoption.RequestOption{anthropicoption.WithBaseURL(c.url), anthropicoption.WithAPIKey(c.key)}
	if c.retries >= 0 {
		options = append(options, anthropicoption.WithMaxRetries(c.retries))
	}
	client := anthropic.NewClient(options...)
	answer, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model: "small", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	if err != nil {
		return "", err
	}
	return answer.Content[0].Text, nil
}

func gemini(ctx context.Context, c call) (string, error) {
	config := &genai.ClientConfig{APIKey: c.key, Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: c.url}}
	if c.retries >= 0 {
		attempts := int32(1 + c.retries)
		config.HTTPOptions.RetryOptions = &genai.HTTPRetryOptions{Attempts: &attempts}
	}
	client, err := genai.NewClient(ctx, config)
	if err != nil {
		return "", err
	}
	answer, err := client.Models.GenerateContent(ctx, "small", genai.Text("hello"), nil)
	if err != nil {
		return "", err
	}
	return answer.Text(), nil
}

// bearer adds a key to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// callMCP makes the call twice in one session, and returns what the second one shows.
func callMCP(ctx context.Context, c call) (shown string, err error) {
	transport := &mcp.StreamableClientTransport{Endpoint: c.url + "/mcp", HTTPClient: &http.Client{Transport: bearer(c.key)}}
	if c.retries >= 0 {
		transport.MaxRetries = c.retries
		if c.retries == 0 {
			transport.MaxRetries = -1
		}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "compat"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	for range 2 {
		if shown, err = callOnce(ctx, session, c.method); err != nil {
			return "", err
		}
	}
	return shown, nil
}

func callOnce(ctx context.Context, session *mcp.ClientSession, method string) (string, error) {
	if method == "tools/list" {
		answer, err := session.ListTools(ctx, nil)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(answer.Tools), " tools"), nil
	}
	answer, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "quick"})
	if err != nil {
		return "", err
	}
	var texts []string
	for _, content := range answer.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return fmt.Sprintf("isError: %v: %s", answer.IsError, strings.Join(texts, " ")), nil
}

type nothing struct{}

func serve(address string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "compat"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "quick"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	return http.ListenAndServe(address, handler)
}
