// SPDX-License-Identifier: MIT

package respond

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
)

// The clients of an API show their users only errors in the form of that API, and of these the message alone. So the
// message has the reason and the moment.
//
// Sources: https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors,
// https://cloud.google.com/apis/design/errors, https://modelcontextprotocol.io/specification

const (
	asOpenAI    = "openai"
	asAnthropic = "anthropic"
	asGemini    = "gemini"
	asJSONRPC   = "jsonrpc"
	asAuto      = "auto"
)

// An apiError is an error in the form of an API.
type apiError struct {
	status  int
	message string
	after   time.Duration // 0: no wait helps
	tokens  bool          // a refusal counts what the response costs, and not requests
}

// FormOf returns the form for a request, or "" for a problem. r may be nil.
func FormOf(form string, r *http.Request) string {
	if form != asAuto {
		return form
	}
	switch {
	case r == nil:
		return ""
	case has(r, "Anthropic-Version") || strings.HasSuffix(r.URL.Path, "/v1/messages"):
		return asAnthropic
	case has(r, "X-Goog-Api-Key") || strings.Contains(r.URL.Path, ":generateContent") || strings.Contains(r.URL.Path, ":streamGenerateContent"):
		return asGemini
	case has(r, "Mcp-Protocol-Version") || has(r, "Mcp-Session-Id") || strings.HasSuffix(r.URL.Path, "/mcp"):
		return asJSONRPC
	case strings.Contains(r.URL.Path, "/v1/") || strings.Contains(r.URL.Path, "/openai/"):
		return asOpenAI
	}
	return ""
}

// Overloaded returns the status of a refusal in a form, or of a problem, because the upstream is overloaded.
func Overloaded(form string) int {
	if form == asAnthropic {
		return 529 // its own
	}
	return http.StatusServiceUnavailable
}

func has(r *http.Request, field string) bool { return len(r.Header[field]) > 0 }

// message says why a request is refused, and until when. People read it, so it names rules as the configuration does.
func (f *Refusal) message() string {
	why := "This request is more than the limits allow"
	if len(f.Policies) > 0 {
		names, _ := url.PathUnescape(strings.Join(f.Policies, ", ")) // which cannot fail for names in fields
		why += " (" + names + ")"
	}
	if f.Never {
		return why + ", and they never allow it. Repeating it does not help."
	}
	text := why + ". " + again(f.RetryAfter)
	if f.Left > 0 {
		text += fmt.Sprintf(" Until then a request may cost %d.", f.Left)
	}
	return text
}

// again says when a request may be repeated.
func again(after time.Duration) string {
	return fmt.Sprintf("It may be repeated in %d s, at %s.", fields.Seconds(after), time.Now().Add(after).UTC().Format(time.RFC3339))
}

// shortWait is how long clients of these APIs wait at most before they repeat a request. They would ignore a longer
// Retry-After and call in vain, or sleep for all of it.
const shortWait = 8 * time.Second

// setRetryFields sets the fields that clients of these APIs read beside Retry-After.
func setRetryFields(h http.Header, after time.Duration, never bool) {
	h.Set("X-Should-Retry", strconv.FormatBool(!never && after <= shortWait))
	if !never {
		ms := max((after+time.Millisecond-1)/time.Millisecond, 1)
		h.Set("Retry-After-Ms", strconv.FormatInt(int64(ms), 10))
	}
}

// write writes the error in a form other than that of a problem and of JSON-RPC.
func (e *apiError) write(w http.ResponseWriter, form string) {
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, []string{"application/json"}
	var b []byte
	switch form {
	case asOpenAI:
		kind, code := e.openAI()
		b = fmt.Appendf(b, `{"error":{"message":%s,"type":%q,"param":null,"code":%s}}`, appendJSON(nil, e.message), kind, code)
	case asAnthropic:
		id := []byte("null")
		if sent := h.Get("X-Request-Id"); sent != "" {
			id = appendJSON(nil, sent)
		}
		b = fmt.Appendf(b, `{"type":"error","error":{"type":%q,"message":%s},"request_id":%s}`, e.anthropic(), appendJSON(nil, e.message), id)
	default:
		b = fmt.Appendf(b, `{"error":{"code":%d,"message":%s,"status":%q`, e.status, appendJSON(nil, e.message), e.gemini())
		if e.after > 0 {
			b = fmt.Appendf(b, `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%ds"}]`, fields.Seconds(e.after))
		}
		b = append(b, "}}"...)
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(append(b, '\n')) // a client that has disconnected needs no response
}

// openAI returns the type and the code, which is in JSON.
func (e *apiError) openAI() (kind, code string) {
	switch {
	case e.status == http.StatusTooManyRequests && (e.after == 0 || e.after > time.Minute):
		return "insufficient_quota", `"insufficient_quota"`
	case e.status == http.StatusTooManyRequests && e.tokens:
		return "tokens", `"rate_limit_exceeded"`
	case e.status == http.StatusTooManyRequests:
		return "requests", `"rate_limit_exceeded"`
	case e.status == http.StatusUnauthorized:
		return "invalid_request_error", `"invalid_api_key"`
	case e.status >= http.StatusInternalServerError:
		return "server_error", "null"
	}
	return "invalid_request_error", "null"
}

func (e *apiError) anthropic() string {
	switch {
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status == http.StatusUnauthorized:
		return "authentication_error"
	case e.status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case e.status >= http.StatusInternalServerError:
		return "overloaded_error"
	}
	return "invalid_request_error"
}

func (e *apiError) gemini() string {
	switch {
	case e.status == http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case e.status == http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case e.status == http.StatusRequestTimeout:
		return "DEADLINE_EXCEEDED"
	case e.status >= http.StatusInternalServerError:
		return "UNAVAILABLE"
	}
	return "INVALID_ARGUMENT"
}
