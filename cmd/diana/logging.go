// SPDX-License-Identifier: MIT

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/plan"
)

// logFlags are the flags of serve that say how it logs.
type logFlags struct {
	LogFormat string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the lines on standard error (${default})."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Lines below this level are left out: debug, info, warn or error (${default})."`
	LogActors string `enum:"plain,hash,off" default:"plain" placeholder:"plain|hash|off" help:"How lines name clients: as they are, by a hash, or not at all (${default})."`
}

// logger returns a logger that writes lines to w. An attribute of a client is written as
// --log-actors says, whoever logs it.
func (f *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // it is one of four
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: f.replace}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// clientKeys are the attributes that name a client.
var clientKeys = map[string]bool{"actor": true, "account": true, "device": true, "ip": true}

// replace returns the attribute that is written for another. The handlers quote the rest of
// what can end a line; JSON leaves some characters alone that a terminal obeys.
func (f *logFlags) replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || !clientKeys[a.Key] {
		return a
	}
	switch f.LogActors {
	case "off":
		return slog.Attr{} // which handlers leave out
	case "hash":
		text := a.Value.String()
		if a.Key == "actor" {
			text = actorValue(text)
		}
		return slog.String(a.Key, hashed(text))
	}
	if text := a.Value.String(); a.Key != "actor" || !strings.HasPrefix(text, `"`) { // or it is quoted already
		return slog.String(a.Key, plan.ActorText(text))
	}
	return a
}

// actorValue returns the value in an actor's text, such as ann in header:X-Account-Id=3:ann; and so
// what other lines hash. A text of several actors, or of a value that has been hashed, stays whole.
func actorValue(text string) string {
	kind, rest, _ := strings.Cut(text, "=")
	if value, ok := strings.CutSuffix(rest, ";"); ok && kind == "ip" && !strings.Contains(value, ";") {
		return value
	}
	length, value, _ := strings.Cut(rest, ":")
	if n, err := strconv.Atoi(length); err == nil && len(value) == n+1 && value[n] == ';' {
		return value[:n]
	}
	return text
}

// hashed returns the first 64 bits of a text's SHA-256. It has no key, so that an operator who
// looks for one client, and other gateways, get the same. Everyone who has the log can try names.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// logRefusal returns the function that writes refusals to the log.
func logRefusal(logger *slog.Logger) func(diana.Refusal) {
	return func(r diana.Refusal) {
		if r.LeftOut > 0 {
			logger.Info("refusals left out", "count", r.LeftOut)
			return
		}
		decision := "refused"
		if r.Shadow {
			decision = "shadow_refused"
		}
		logger.Info("refusal", "rule", r.Rule, "actor", r.Actor, "method", r.Method, "path", r.Path,
			"decision", decision, "count", r.Count)
	}
}

// identities returns who makes a request, as attributes of a line: what the identity in force
// finds. An account or a device that the request does not tell is left out.
func identities(limiter *diana.Limiter, r *http.Request) (attrs []slog.Attr) {
	account, device, ip := limiter.Identify(diana.Request{HTTP: r})
	if account != "" {
		attrs = append(attrs, slog.String("account", account))
	}
	if device != "" {
		attrs = append(attrs, slog.String("device", device))
	}
	if ip.IsValid() {
		attrs = append(attrs, slog.String("ip", ip.String()))
	}
	return attrs
}
