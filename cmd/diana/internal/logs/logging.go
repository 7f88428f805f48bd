// SPDX-License-Identifier: MIT

package logs

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

// Flags are the flags of serve for its log.
type Flags struct {
	LogFormat string `enum:"text,json" default:"text" placeholder:"text|json" help:"Format of the log on standard error (${default})."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"The log omits lines below this level: debug, info, warn or error (${default})."`
	LogActors string `enum:"plain,hash,off" default:"plain" placeholder:"plain|hash|off" help:"How the log names clients: plainly, by a hash, or not at all (${default})."`
}

// Logger returns a logger that writes to w. It writes every attribute that names a client as
// --log-actors says.
func (f *Flags) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // kong has checked it
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: f.replace}
	return slog.New(newPlainLines(w, f.LogFormat == "json", o))
}

// namesClient reports whether attributes with this key name a client.
func namesClient(key string) bool {
	switch key {
	case "actor", "value", "account", "device", "ip":
		return true
	}
	return false
}

// replace returns the attribute to write instead of a. It quotes the names of clients, because the
// JSON handler does not escape all characters that control a terminal.
func (f *Flags) replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || !namesClient(a.Key) {
		return a
	}
	switch {
	case f.LogActors == "off", f.LogActors == "hash" && a.Key == "value": // the hash of the actor is that of its value
		return slog.Attr{} // handlers omit it
	case f.LogActors == "hash":
		text := a.Value.String()
		if a.Key == "actor" {
			text = actorValue(text)
		}
		return slog.String(a.Key, hashed(text))
	}
	if text := a.Value.String(); a.Key != "actor" || !strings.HasPrefix(text, `"`) { // not yet quoted
		return slog.String(a.Key, plan.ActorText(text))
	}
	return a
}

// actorValue returns the value in the key of an actor, such as ann in header:X-Account-Id=3:ann; so
// that its hash is that of other lines. It returns the whole key of several actors, or of a value
// that is already hashed.
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

// valueOf returns what people know an actor by. The key can be quoted already.
func valueOf(actor string) string {
	if key, err := strconv.Unquote(actor); err == nil {
		actor = key
	}
	return plan.ActorName(actor)
}

// hashed returns the first 64 bits of a text's SHA-256. It has no secret key, so all gateways write the
// same hash, and an operator can compute it. Everyone who has the log can compute hashes of names.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// Refusals returns the function that writes refusals to the log.
func Refusals(logger *slog.Logger) func(diana.Refusal) {
	return func(r diana.Refusal) {
		if r.LeftOut > 0 {
			logger.Info("refusals left out", "count", r.LeftOut)
			return
		}
		decision := "refused"
		if r.Shadow {
			decision = "shadow_refused"
		}
		attrs := []any{"rule", r.Rule, "actor", r.Actor, "value", valueOf(r.Actor), "method", r.Method, "path", r.Path, "decision", decision, "count", r.Count}
		if r.Degraded {
			attrs = append(attrs, "degraded", true)
		}
		logger.Info("refusal", attrs...)
	}
}

// Identities returns the attributes of a line that name the client of a request: account, device and
// ip, as the active identity finds them. It omits an account or a device that the request lacks.
func Identities(limiter *diana.Limiter, r *http.Request) []slog.Attr {
	attrs := make([]slog.Attr, 0, 3)
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
