// SPDX-License-Identifier: MIT

package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/diana-limiter/diana/internal/testproc"
)

const (
	chatPath     = "/v1/chat/completions"
	messagesPath = "/v1/messages"
)

// tally is what clients have seen: what each key was charged, and how many responses had no whole usage.
type tally struct {
	Charged   map[string]int `json:"charged"`
	Unsettled int            `json:"unsettled"`
	Left      int            `json:"left"` // of those, because the client left early
}

// TestTokens: requests of the SDKs of OpenAI and Anthropic, through diana serve, are charged exactly what the
// provider reports to the client. A tenth of the clients leaves early and keeps the larger of the reservation
// and the cost that was counted.
func TestTokens(t *testing.T) {
	requests := 400
	if *allServers {
		requests = 10_000
	}
	for name, behind := range map[string]func(*testing.T, string) string{
		"direct":        func(_ *testing.T, host string) string { return host },
		"gzip of nginx": compressing,
	} {
		t.Run(name, func(t *testing.T) {
			requests := requests
			if name != "direct" {
				requests = min(requests, 2000)
			}
			g := serveTokens(t, behind(t, provider(t)), rules(""))
			began := time.Now()
			chat := g.chatClients(t, requests/2)
			g.check(t, "chat", chatPath, chat)
			messages := tally{}
			if _, err := os.Stat("testdata/clients/node_modules"); err == nil {
				messages = g.messageClients(t, requests/2)
				g.check(t, "messages", messagesPath, messages)
			} else if *allServers {
				t.Error(err)
			}
			sum := 0
			for _, c := range []tally{chat, messages} {
				for _, n := range c.Charged {
					sum += n
				}
			}
			t.Logf("%d requests, %d of them left early, %d unsettled, %d tokens charged, in %v",
				requests, chat.Left+messages.Left, chat.Unsettled+messages.Unsettled, sum, time.Since(began).Round(time.Second))
		})
	}
}

// check compares what clients have seen with what the gateway has charged.
func (g *tokenGateway) check(t *testing.T, rule, path string, want tally) {
	t.Helper()
	if !testproc.Becomes(func() bool { return g.unsettled(t, rule) >= want.Unsettled }) || g.unsettled(t, rule) != want.Unsettled {
		t.Errorf("%s: %d unsettled, want %d", rule, g.unsettled(t, rule), want.Unsettled)
	}
	wrong := 0
	for key, n := range want.Charged {
		if got := g.charged(t, path, key); got != n {
			if wrong++; wrong <= 10 {
				t.Errorf("%s: %s is charged %d, want %d", rule, key, got, n)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d keys are charged wrongly", rule, wrong, len(want.Charged))
	}
}

// chatClients sends requests with the SDK of OpenAI.
func (g *tokenGateway) chatClients(t *testing.T, requests int) tally {
	t.Helper()
	const workers = 16
	seen := tally{Charged: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(17, uint64(w)))
			for i := w; i < requests; i += workers {
				key := fmt.Sprint("chat-", w)
				if i%10 == 9 {
					key = fmt.Sprint("chat-left-", i)
				}
				c := openai.NewClient(option.WithBaseURL("http://"+g.host+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
				ctx, leave := context.WithCancel(t.Context())
				var onceCharged func()
				if i%10 == 9 {
					onceCharged = func() {
						testproc.Becomes(func() bool { return g.charged(t, chatPath, key) > 0 })
						leave()
					}
				}
				cost, kind, err := chatOnce(ctx, c, rnd, onceCharged)
				leave()
				mu.Lock()
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
				seen.Charged[key] += cost
				if kind != settled {
					seen.Unsettled++
				}
				if kind == left {
					seen.Left++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return seen
}

// outcome is how a response ended.
type outcome int

const (
	settled outcome = iota
	noUsage
	left
)

// chatOnce sends a request, streamed or not. It returns what Diana has to charge. If leave is not nil, the client
// leaves early: it calls leave, which ends ctx when the request has been charged.
func chatOnce(ctx context.Context, c openai.Client, rnd *rand.Rand, leave func()) (cost int, kind outcome, err error) {
	p := openai.ChatCompletionNewParams{
		Model: "small", MaxTokens: openai.Int(1 + rnd.Int64N(40)),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(strings.Repeat("x", rnd.IntN(60))),
			openai.UserMessage(strings.Repeat("y", rnd.IntN(60))),
		},
	}
	leaves := leave != nil
	if leaves {
		p.Model = "slow"
	}
	stream, reports := rnd.IntN(2) == 0, rnd.IntN(4) > 0
	if !stream {
		if leaves {
			go leave()
		}
		answer, err := c.Chat.Completions.New(ctx, p)
		switch {
		case leaves && err != nil:
			return reserved, left, nil
		case err != nil:
			return 0, settled, err
		}
		return int(answer.Usage.TotalTokens), settled, nil
	}
	p.StreamOptions.IncludeUsage = openai.Bool(reports)
	s := c.Chat.Completions.NewStreaming(ctx, p)
	defer s.Close()
	cost = -1
	content := 0
	for s.Next() {
		for _, choice := range s.Current().Choices {
			content += len(choice.Delta.Content)
		}
		if leaves { // Close disconnects
			return reserved, left, nil
		}
		if u := s.Current().Usage; u.TotalTokens > 0 {
			cost = int(u.TotalTokens)
		}
	}
	switch {
	case s.Err() != nil:
		return 0, settled, s.Err()
	case cost < 0 && !reports:
		return max(reserved, content), noUsage, nil // a byte of text counts as a token
	}
	return cost, settled, nil
}

// messageClients sends requests with the SDK of Anthropic for Node.
func (g *tokenGateway) messageClients(t *testing.T, requests int) (seen tally) {
	t.Helper()
	node := exec.Command("node", "testdata/clients/tokens.mjs", "http://"+g.host, strconv.Itoa(requests), strconv.Itoa(reserved), strconv.Itoa(quota))
	var stderr bytes.Buffer
	node.Stderr = &stderr
	out, err := node.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("node: %v in %s", err, out)
	}
	return seen
}
