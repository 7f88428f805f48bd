// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTokensHuge: the memory of the gateway does not grow with the length of a stream, or of a JSON document.
// Each has 128 MiB, and 1 GiB with -all.
func TestTokensHuge(t *testing.T) {
	pieces := 128
	if *allServers {
		pieces = 1024
	}
	const usage = `"usage": {"prompt_tokens": 12, "completion_tokens": 8}`
	event := `data: {"choices": [{"delta": {"content": "` + strings.Repeat("x", 970) + `"}}]}` + "\n\n"
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := io.ReadAll(r.Body)
		contentType, before, piece, after := "application/json", `{"choices": "`, strings.Repeat("x", 1<<20), `", `+usage+"}"
		switch string(name) {
		case "{}": // asks what was charged
			w.WriteHeader(http.StatusBadRequest)
			return
		case "stream":
			contentType, before, piece, after = "text/event-stream", "", strings.Repeat(event, 1<<20/len(event)), sse("{"+usage+"}", "[DONE]")
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, before)
		for range pieces {
			_, _ = io.WriteString(w, piece)
		}
		_, _ = io.WriteString(w, after)
	}))
	t.Cleanup(provider.Close)
	g := serveTokens(t, provider.Listener.Addr().String(), hostileRules, "--log-level", "warn")
	for _, name := range []string{"stream", "document"} {
		before := g.peakMemory(t)
		answer := ask(t, g.host, chatPath, name, name)
		n, err := io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || n < int64(pieces)*9e5 {
			t.Fatalf("%s: %d bytes: %v", name, n, err)
		}
		if got := g.charged(t, chatPath, name); got != 20 {
			t.Errorf("%s: %d charged, want 20", name, got)
		}
		grown := g.peakMemory(t) - before
		t.Logf("%s: %d MB, the peak of the gateway's memory grew by %d kB", name, n/1e6, grown)
		if grown > 64<<10 {
			t.Errorf("%s: the peak of the gateway's memory grew by %d kB, want at most 64 MiB", name, grown)
		}
	}
}

var peakMemory = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// peakMemory returns the most memory that the gateway has had, in kB.
func (g *tokenGateway) peakMemory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.process.PID))
	if err != nil {
		t.Skip("the system does not tell the peak of a process's memory: ", err)
	}
	found := peakMemory.FindSubmatch(text)
	if found == nil {
		t.Fatalf("no VmHWM in\n%s", text)
	}
	kB, _ := strconv.Atoi(string(found[1]))
	return kB
}
