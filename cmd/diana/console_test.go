// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// visitor sends requests to the console of a gateway.
type visitor struct {
	*testing.T
	admin string // the address of the listener
	token string
}

// request returns a request with a body of JSON, unless body is "". Fields are pairs of a name and a value.
func (o visitor) request(method, path, body string, fields ...string) *http.Request {
	o.Helper()
	r, err := http.NewRequestWithContext(o.Context(), method, o.admin+path, strings.NewReader(body))
	if err != nil {
		o.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if o.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		}
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

func (o visitor) send(method, path, body string, fields ...string) exchange.Answer {
	o.Helper()
	return exchange.RoundTrip(o.T, o.request(method, path, body, fields...))
}

// serveConsole starts a gateway with a token, and returns its visitor without the token.
func serveConsole(t *testing.T, yaml string) (*served, visitor) {
	t.Helper()
	s := newSite(t, nil)
	g := serve(t, yaml, s.upstream.URL, "--admin-token", tokenIn(t, "s3cret-of-the-operators"))
	return g, visitor{T: t, admin: g.admin}
}

// A page of another site reads nothing by a name that resolves to the listener. It changes nothing with the
// cookie of the operator's session, even if it knows the CSRF token.
func TestConsoleOtherSites(t *testing.T) {
	t.Parallel()
	g, o := serveConsole(t, forAll)
	w := o.send("POST", "/api/v1/session", `{"token": "s3cret-of-the-operators"}`)
	var session struct{ CSRF string }
	if err := json.Unmarshal([]byte(w.Body), &session); err != nil || session.CSRF == "" {
		t.Fatal(w.Status, err)
	}
	cookie := []string{"Cookie", w.Header.Get("Set-Cookie"), "X-Diana-Csrf", session.CSRF}
	for _, host := range []string{"evil.example", "evil.example:9090", "127.0.0.1.evil.example"} {
		for _, path := range []string{"/", "/console/app.js", "/api/v1/live", "/api/v1/session", "/api/v1/openapi.json", "/api/v1/config"} {
			if w := o.send("GET", path, "", append(cookie, "Host", host)...); w.Status != http.StatusMisdirectedRequest {
				t.Errorf("GET %s for %s: %d", path, host, w.Status)
			}
		}
		if w := o.send("POST", "/api/v1/session", `{"token": "s3cret-of-the-operators"}`, "Host", host); w.Status != http.StatusMisdirectedRequest || w.Header.Get("Set-Cookie") != "" {
			t.Errorf("a session for %s: %d", host, w.Status)
		}
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(g.admin, "http://"))
	for _, from := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://localhost:8080"}, {"Origin", "http://localhost:" + port},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		for _, path := range []string{"/api/v1/session", "/api/v1/push", "/api/v1/reset", "/api/v1/whatif", "/reset"} {
			if w := o.send("POST", path, `{"rule": "generous", "actor": "all"}`, append(cookie, from...)...); w.Status != http.StatusForbidden {
				t.Errorf("POST %s with %q: %d", path, from, w.Status)
			}
		}
	}
}

// A client that sends its request slowly, or too much of it, does not keep the listener from others.
func TestConsoleSlowAndLarge(t *testing.T) {
	t.Parallel()
	g, o := serveConsole(t, forAll)
	address := strings.TrimPrefix(g.admin, "http://")
	for name, begin := range map[string]string{
		"fields": "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"body":   "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, begin); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(testproc.Patience)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c) // until the gateway closes the connection
			if err != nil || bytes.HasPrefix(got, []byte("HTTP/1.1 200")) {
				t.Errorf("%v, answer %q", err, got)
			}
		})
	}
	for range 200 { // slow clients, all at once
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nX"); err != nil {
			t.Fatal(err)
		}
	}
	if w := o.send("GET", "/", ""); w.Status != http.StatusOK {
		t.Error("beside slow clients:", w.Status)
	}
	if w := o.send("GET", "/", "", "X-Large", strings.Repeat("x", 64<<10)); w.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Error("large fields:", w.Status)
	}
	for _, path := range []string{"/api/v1/session", "/api/v1/validate", "/api/v1/compare", "/api/v1/whatif"} {
		if w := o.send("POST", path, `{"text": "`+strings.Repeat("x", 3<<20)+`"}`); w.Status < 400 || w.Status >= 500 {
			t.Errorf("%s with a large body: %d", path, w.Status)
		}
	}
}

// openAPI is the OpenAPI document of a gateway.
type openAPI struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		RequestBody any
		Responses   map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
}

// routes returns the routes of the API that the sources of the program register, without /api/v1.
func routes(t *testing.T) (all []string) {
	t.Helper()
	pattern := regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) /api/v1(/.*)?$`)
	constants := map[string]string{"sessionPath": "/api/v1/session", "documentPath": "/api/v1/openapi.json"}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text := ""
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if x, ok := n.X.(*ast.BasicLit); ok {
					if y, ok := n.Y.(*ast.Ident); ok {
						text, _ = strconv.Unquote(x.Value)
						text += constants[y.Name]
					}
				}
			case *ast.BasicLit:
				text, _ = strconv.Unquote(n.Value)
			}
			if m := pattern.FindStringSubmatch(text); m != nil {
				all = append(all, strings.ToLower(m[1])+" "+m[2])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The OpenAPI document has every route of the API, and every answer of a gateway has the fields that it names.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	c := startCentred(t, 0)
	document := "[{url: /, rules: [{name: few, actor: 'query:who', algo: W, unit: day, rpu: 3, scope: global}]}]"
	if err := c.document.Put(t.Context(), []byte(document)); err != nil {
		t.Fatal(err)
	}
	g, o := serveConsole(t, fmt.Sprintf("{redis: {url: %q}, remote: {url: %q}}", redistest.Start(t).URL(), c.url))
	testproc.Eventually(t, func() bool { return len(g.status(t).Rules) == 1 })
	for range 5 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/?who=ann", nil)
		if err != nil {
			t.Fatal(err)
		}
		exchange.RoundTrip(t, r)
	}
	o.token = "s3cret-of-the-operators"
	api := newContract(o)
	api.complete()

	api.call("get", "/session", "/session", "")
	api.call("post", "/session", "/session", `{"token": "s3cret-of-the-operators"}`)
	api.call("get", "/openapi.json", "/openapi.json", "")
	api.call("get", "/live", "/live?rules=1", "")
	api.stream("/live/stream")
	api.call("get", "/fleet", "/fleet", "")
	api.call("get", "/recent", "/recent", "")
	api.call("get", "/schema.json", "/schema.json", "")
	api.call("post", "/validate", "/validate", `{"text": "rules: [{rpu: x}]"}`)
	api.call("post", "/compare", "/compare", fmt.Sprintf(`{"text": %q}`, strings.Replace(document, "rpu: 3", "rpu: 30", 1)))
	api.call("post", "/compare", "/compare", `{"text": "rules: [{rpu: x}]"}`)
	api.call("post", "/whatif", "/whatif", fmt.Sprintf(`{"text": %q}`, strings.Replace(document, "rpu: 3", "rpu: 1", 1)))
	version := api.call("get", "/config", "/config", "")["version"]
	pushed := api.call("post", "/push", "/push", fmt.Sprintf(`{"text": %q, "comment": "more", "expect": %q, "by": "ann"}`, strings.Replace(document, "rpu: 3", "rpu: 4", 1), version))
	api.call("get", "/versions", "/versions", "")
	api.call("get", "/versions/{number}", fmt.Sprintf("/versions/%v", pushed["number"]), "")
	testproc.Eventually(t, func() bool { return g.status(t).Config.Version == pushed["version"] })
	api.call("post", "/rollback", "/rollback", fmt.Sprintf(`{"number": 1, "comment": "back", "expect": %q, "by": "ann"}`, pushed["version"]))
	api.call("get", "/actor", "/actor?actor=ann", "")
	api.call("post", "/peek", "/peek", `{"request": "GET /?who=ann HTTP/1.1\r\nHost: a\r\n\r\n", "from": "192.0.2.1"}`)
	api.call("post", "/peek", "/peek", `{"request": "GET", "from": "192.0.2.1"}`)
	version = api.call("get", "/config", "/config", "")["version"]
	api.call("post", "/exempt", "/exempt", fmt.Sprintf(`{"rule": "few", "actor": "ann", "expect": %q, "seconds": 60}`, version))
	api.call("post", "/reset", "/reset", `{"rule": "few", "actor": "ann"}`)
	api.call("get", "/audit", "/audit", "")
	api.call("delete", "/session", "/session", "")

	api.call("post", "/push", "/push", fmt.Sprintf(`{"text": %q, "expect": "000000000000"}`, document))
	api.call("post", "/push", "/push", fmt.Sprintf(`{"text": "rules: x", "expect": %q}`, version))
	api.call("get", "/versions/{number}", "/versions/999999", "")
	api.call("get", "/actor", "/actor", "")
	api.call("get", "/actor", "/actor?actor=ann&rule=none", "")
	api.call("get", "/actor", "/actor?actor=ann&actor=bob&rule=few", "")
	api.call("post", "/exempt", "/exempt", fmt.Sprintf(`{"rule": "few", "actor": "ann", "expect": %q, "seconds": 60}`, version))
	api.call("post", "/whatif", "/whatif", `{"text": "rules: x"}`)
	for operation := range api.operations {
		if !slices.Contains(api.called, operation) {
			t.Errorf("%s is not tested", operation)
		}
		if method, path, _ := strings.Cut(operation, " "); method == "post" {
			api.call(method, path, path, "{}")
			api.call(method, path, path, `{"unknown": 1}`)
		}
	}
	c.etcd.Kill()
	for _, path := range []string{"/config", "/versions", "/versions/{number}"} {
		api.call("get", path, strings.Replace(path, "{number}", "1", 1), "")
	}
}

// contract compares the answers of a gateway with its OpenAPI document.
type contract struct {
	visitor
	compiler   *jsonschema.Compiler
	operations map[string]map[string]string // the content type and schema by status, of "get /live"
	called     []string
}

func newContract(o visitor) *contract {
	o.Helper()
	text := []byte(o.send("GET", "/api/v1/openapi.json", "").Body)
	var d openAPI
	if err := json.Unmarshal(text, &d); err != nil || d.OpenAPI != "3.1.0" {
		o.Fatal(err, d.OpenAPI)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		o.Fatal(err)
	}
	c := &contract{visitor: o, compiler: jsonschema.NewCompiler(), operations: map[string]map[string]string{}}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("mem:openapi", whole); err != nil {
		o.Fatal(err)
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	for path, methods := range d.Paths {
		for method, operation := range methods {
			answers := map[string]string{}
			for status, answer := range operation.Responses {
				answers[status] = ""
				for kind := range answer.Content {
					answers[status] = kind + " mem:openapi#/paths/" + escape.Replace(path) + "/" + method + "/responses/" + status + "/content/" + escape.Replace(kind) + "/schema"
				}
			}
			c.operations[method+" "+path] = answers
		}
	}
	return c
}

// complete checks that the document has the routes of the program, and no others.
func (c *contract) complete() {
	c.Helper()
	all := routes(c.T)
	for _, route := range all {
		if c.operations[route] == nil {
			c.Errorf("the document does not have %s", route)
		}
	}
	for operation := range c.operations {
		if !slices.Contains(all, operation) {
			c.Errorf("the program does not have %s", operation)
		}
	}
}

// call sends a request, checks its answer, and returns it.
func (c *contract) call(method, path, target, body string) map[string]any {
	c.Helper()
	c.called = append(c.called, method+" "+path)
	w := c.send(strings.ToUpper(method), "/api/v1"+target, body)
	text := []byte(w.Body)
	expected, ok := c.operations[method+" "+path][strconv.Itoa(w.Status)]
	if !ok {
		c.Errorf("%s %s %s: the document does not have the status %d: %s", method, target, body, w.Status, text)
		return nil
	}
	if expected == "" {
		return nil
	}
	kind, schema, _ := strings.Cut(expected, " ")
	if got, _, _ := strings.Cut(w.Header.Get("Content-Type"), ";"); got != kind {
		c.Errorf("%s %s: Content-Type %q, want %s", method, target, got, kind)
	}
	return c.matches(method+" "+target, schema, text)
}

// matches checks a text by a schema, and returns it.
func (c *contract) matches(what, schema string, text []byte) map[string]any {
	c.Helper()
	compiled, err := c.compiler.Compile(schema)
	if err != nil {
		c.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = compiled.Validate(value)
	}
	if err != nil {
		c.Errorf("%s: %v\n%.2000s", what, err, text)
	}
	object, _ := value.(map[string]any)
	return object
}

// stream checks the first event of a stream.
func (c *contract) stream(path string) {
	c.Helper()
	c.called = append(c.called, "get "+path)
	w, err := http.DefaultTransport.RoundTrip(c.request("GET", "/api/v1"+path, ""))
	if err != nil {
		c.Fatal(err)
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK || !strings.HasPrefix(w.Header.Get("Content-Type"), "text/event-stream") {
		c.Errorf("%s: %s %v", path, w.Status, w.Header)
		return
	}
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	for event := ""; lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == "live" {
			c.matches(path, "mem:openapi#/components/schemas/Live", []byte(data))
			return
		}
	}
	c.Errorf("%s has no event: %v", path, lines.Err())
}

// forAll is a configuration that refuses no request of these tests.
const forAll = "url: /\nrules: [{name: generous, rpu: 1000000}]"
