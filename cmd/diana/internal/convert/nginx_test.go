// SPDX-License-Identifier: MIT

package convert

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/internal/race"
)

var update = flag.Bool("update", false, "rewrite the expected rules")

// checkResult checks what holds for every result: the rules are valid, and each remark has a place and is a comment in
// them.
func checkResult(t *testing.T, r Result) *config.Config {
	t.Helper()
	c, err := command.Vocabulary().Parse("rules", []byte(r.YAML))
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.YAML)
	}
	for _, e := range r.Remarks {
		if e.File == "" || e.Line < 1 || e.Column < 1 || e.Message == "" {
			t.Errorf("a remark without a place: %+v", e)
		}
		if !strings.Contains(r.YAML, "# "+printable(e.String())+"\n") {
			t.Errorf("the rules lack the remark %q", e)
		}
	}
	return c
}

// Each configuration of testdata has the rules beside it. They are real ones in small: the examples of nginx.org,
// of its blog, of WordPress and of OpenResty, and odd ones.
func TestNginx(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Nginx(filepath.Base(file), string(text), "")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		checkResult(t, result)
		golden := strings.TrimSuffix(file, ".conf") + ".yaml"
		if *update {
			if err := os.WriteFile(golden, []byte(result.YAML), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != result.YAML {
			t.Errorf("%s: %v, found\n%s", golden, err, result.YAML)
		}
	}
}

// A limit of nginx has a rule or a remark at its place, so none is lost silently. The other limits of the same line
// count too.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	limits := regexp.MustCompile(`\b(limit_req|limit_conn|limit_rate|limit_zone|proxy_limit_rate) |limit_rate_after [1-9]`)
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Nginx("x.conf", string(text), "")
		if err != nil {
			t.Fatal(err)
		}
		at, line := "x.conf", 0
		for row := range strings.Lines(string(text)) {
			line++
			if name, ok := strings.CutPrefix(row, "# configuration file "); ok {
				at, line = strings.TrimSuffix(name, ":\n"), 0
			}
			if row, _, _ = strings.Cut(row, "#"); !limits.MatchString(row) {
				continue
			}
			place := regexp.MustCompile(regexp.QuoteMeta(at) + `:` + strconv.Itoa(line) + `\b|line ` + strconv.Itoa(line) + `\b`)
			if !place.MatchString(result.YAML) {
				t.Errorf("%s:%d is in no rule and no remark: %s", file, line, row)
			}
		}
	}
}

// A broken or hostile file ends in an error with its place, in bounded time.
func TestHostile(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	for name, row := range map[string]struct{ text, want string }{
		"open quote":        {"http {\n  limit_req_zone \"abc;\n}\n", `a:2:18: the quotation mark " is not closed`},
		"open single quote": {"a 'b\\'", `a:1:3: the quotation mark ' is not closed`},
		"after a quote":     {"a \"b\"c;", "a:1:6: expected a space, ; or { after the quotation mark"},
		"open block":        {"http {\n server {\n", `a:2:2: the block of "server" is not closed`},
		"no semicolon":      {"server { listen 80 }", `a:1:10: the directive "listen" does not end in ; or a block`},
		"end":               {"server", `a:1:1: the directive "server" does not end in ; or a block`},
		"brace":             {"}", "a:1:1: this } closes no block"},
		"semicolon":         {"é;;", "a:1:3: expected a directive before ;"},
		"block":             {"{", "a:1:1: expected a directive before {"},
		"Lua":               {"\nrewrite_by_lua_block { if x { ", "a:2:23: the block of Lua is not closed"},
		"Lua string":        {"x_by_lua_block { '", "a:1:17: the block of Lua is not closed"},
		"Lua bracket":       {"x_by_lua_block { --[=[ } ", "a:1:17: the block of Lua is not closed"},
		"deep":              {strings.Repeat("a{", 100_000), "a:1:131: expected at most 64 blocks and files inside each other"},
		"itself":            {"# configuration file /a:\ninclude a;\n", ""}, // only another file
		"each other":        {"# configuration file /a:\ninclude b;\n# configuration file /b:\ninclude b;\n", "/b:1:1: expected at most 64 blocks and files inside each other"},
		"laughs": {"# configuration file /0:\ninclude 1;\n" + func() (text string) {
			for c := '1'; c < '9'; c++ {
				text += "# configuration file /" + string(c) + ":\n" + strings.Repeat("include "+string(c+1)+";\n", 100)
			}
			return text
		}() + "# configuration file /9:\nx;\n", "expected at most 200000 directives, found more"},
		"many directives": {strings.Repeat("a;", 1<<20), "expected at most 200000 directives, found more"},
		"many words":      {"a " + strings.Repeat("b ", 1<<21) + ";", ""},
		"many locations":  {strings.Repeat("server { location /a { } }", 3000), "expected at most 5000 servers and locations, found more; see --server"},
		"too large":       {strings.Repeat("#", 9<<20), "a: expected at most 8192 KiB, found more"},
		"bytes":           {"\x00\xff {\xfe;}", ""},
		"empty":           {"", ""},
		"no name":         {"# configuration file :\nlimit_;", ""},
		"no arguments":    {"geo{} map{} limit_req_zone; limit_conn_zone; limit_req; limit_conn; limit_rate; error_page; set; real_ip_header; set_real_ip_from; include; server{ server_name; location{ limit_req; } }", ""},
	} {
		result, err := Nginx("a", row.text, "")
		if row.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else {
				checkResult(t, result)
			}
		} else if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %.300v, expected %s", name, err, row.want)
		}
	}
}

// Many different limits in many locations with regular expressions take seconds at most, and not hours.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	var b strings.Builder
	b.WriteString("limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\nserver {\n")
	for i := range mostPlaces/2 - 1 {
		b.WriteString("location /" + strconv.Itoa(i) + "/ { limit_req zone=z burst=" + strconv.Itoa(i) + "; }\nlocation ~ \\." + strconv.Itoa(i) + "$ { }\n")
	}
	b.WriteString("}\n")
	result, err := Nginx("a", b.String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if c := checkResult(t, result); len(c.Limits) != mostPlaces/2-1 {
		t.Errorf("%d entries", len(c.Limits))
	}
}

// --server converts one server of several.
func TestServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/servers.conf")
	if err != nil {
		t.Fatal(err)
	}
	result, err := Nginx("a", string(text), "shop.example")
	if err != nil {
		t.Fatal(err)
	}
	if c := checkResult(t, result); len(c.Limits) != 1 || c.Limits[0].Rules[0].Name != "session" {
		t.Error(result.YAML)
	}
	_, err = Nginx("a", string(text), "shop.exampel")
	if err == nil || err.Error() != `a: no server has the name "shop.exampel" (did you mean shop.example?)` {
		t.Error(err)
	}
}

func FuzzNginx(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		result, err := Nginx("a", text, "")
		if err != nil {
			var mistakes config.Errors
			if errors.As(err, &mistakes) && (mistakes[0].Line < 1 || mistakes[0].Column < 1) {
				t.Fatalf("a mistake without a place: %+v", mistakes)
			}
			return
		}
		checkResult(t, result)
		if again, err := Nginx("a", text, ""); err != nil || again.YAML != result.YAML {
			t.Fatalf("twice: %v\n%s\n%s", err, result.YAML, again.YAML)
		}
	})
}

// The page from-nginx.md shows the rules of its configuration, without names. TestLimitReq of cmd/diana/compat compares
// them with nginx.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/gateways/from-nginx.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		return regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(string(page))[1]
	}
	result, err := Nginx("limits.conf", block("nginx"), "")
	if err != nil || len(result.Remarks) > 0 {
		t.Fatal(err, result.Remarks)
	}
	want, err := config.Parse("page", []byte(block("yaml")))
	if err != nil {
		t.Fatal(err)
	}
	got := checkResult(t, result)
	for _, c := range []*config.Config{got, want} {
		for i := range c.Limits {
			for j := range c.Limits[i].Rules {
				c.Limits[i].Rules[j].Name = ""
			}
		}
	}
	if changes := diff.Configs(want, got); len(changes) > 0 {
		t.Errorf("%v: the page shows\n%s, and the command prints\n%s", changes, block("yaml"), result.YAML)
	}
}

// Each row is a directive or two, and a part of the rules or a remark about it.
func TestNginxRows(t *testing.T) {
	t.Parallel()
	const limited = `limit_req_zone KEY zone=z:1m rate=1r/s; server { server_name a; limit_req zone=z; }`
	keyed := func(key string) string { return strings.Replace(limited, "KEY", key, 1) }
	for _, row := range []struct{ text, want string }{
		{keyed("$arg_key"), `actor: "query:key"`},
		{keyed("$http_host"), "actor: host"},
		{keyed("all"), "actor: all"},
		{keyed("$host$remote_addr$cookie_a"), `actor: [host, ip, "cookie:a"]`},
		{keyed("$host$remote_addr$cookie_a$cookie_b"), "an actor of Diana has at most 3 parts"},
		{keyed("x$cookie_a"), "1:1: nginx counts requests without the cookie a together; Diana counts them by their address"},
		{keyed("$cookie_a$arg_b"), "without the cookie a and the parameter b"},
		{keyed("$http"), "no actor of Diana is like $http"},
		{keyed("$remote_user"), "no actor of Diana is like $remote_user"},
		{"map $a $b { x y; } " + keyed("x$b"), "$b is of the map in line 1, and no actor of Diana is like it"},
		{"map $a $b { x y; } " + keyed("$b"), "Diana exempts networks and values, and no $a"},
		{"map $remote_addr $b { 10.0.0.1 $remote_addr; } " + keyed("$b"), "it limits only some clients"},
		{"map $remote_addr $b { default $remote_addr; nobody ''; } " + keyed("$b"), `expected an address or a network, found "nobody"`},
		{"map $remote_addr $b { default $remote_addr; ::1 $host; } " + keyed("$b"), "it gives several keys"},
		{"map $remote_addr $b { default $remote_addr; ::1 $remote_addr; 10.0.0.1 ''; } " + keyed("$b"), `except: ["10.0.0.1/32"]`},
		{"geo $g { default x; 10.0.0.0/8 y; 10.1.0.0/16 x; } map $g $b { x $remote_addr; } " + keyed("$b"), "it limits 10.1.0.0/16 inside 10.0.0.0/8"},
		{"geo $http_x $g { default x; } map $g $b { x $remote_addr; } " + keyed("$b"), "Diana exempts networks and values, and no $g"},
		{"geo $g { ranges; default x; } map $g $b { x $remote_addr; } " + keyed("$b"), `"ranges" in the geo in line 1 is not understood`},
		{"geo $g { default x; } " + keyed("$g"), "the geo in line 1: it gives no key that Diana has"},
		{"map $request_method $b { POST $host; PUT $remote_addr; } " + keyed("$b"), "it gives several keys"},
		{keyed("$server_name") + " server { server_name b; }", "actor: host"},
		{keyed("$server_name") + " server { server_name ''; }", "$server_name is empty in the server in line 1"},
		{keyed("KEY") + " server { listen 1; location / { return 404; } }", "limits:\n  - url: /\n    rules:\n      - {name: z, actor: all, unit: second, rpu: 1, burst: 1} # a:1\n"},
		{"server { limit_rate 2000000; }", "bandwidth: 2m #"},
		{"server { limit_rate 1G; }", "a bandwidth of Diana is 1,000 to 1,000,000,000 bytes a second"},
		{"server { limit_rate $rate; }", `limit_rate: expected a number of bytes such as 500k, found "$rate"`},
		{"server { limit_rate 5k; location ~ x { limit_rate 2k; } location = /y { limit_rate 3k; } }", "bandwidth: 5120 #"},
		{"server { limit_rate 5k; location ~ x { limit_rate 2k; } }", `no url of Diana is like the location "~ x" in line 1, so its answers have no bandwidth`},
		{"server { limit_conn_status 444; }", "444: nginx closes the connection without an answer"},
		{"limit_conn_zone a zone=b:1m; server { limit_conn b 1; limit_conn_status 417; location /a { limit_conn b 2; limit_conn_status 499; } }", "divert: {status: 499, body: \"Refused\"}"},
		{"limit_conn_zone a 'zone=b\\t\\\\\\'\\x:1m'; server { limit_conn 'b\\t\\\\\\'\\x' 1; }", "- {actor: all, algo: C, rpu: 1}"},
		{"limit_conn_zone a zone=true:1m; server { limit_conn true 1; }", `{name: "true", `},
		{"limit_conn_zone a zone=12:1m; server { limit_conn 12 1; }", `{name: "12", `},
		{"limit_conn_zone a zone=x:1m; limit_conn_zone a zone=x-2:1m; server { location /a { limit_conn x 1; } location /b { limit_conn x 1; } location /c { limit_conn x-2 1; } }", "{name: x-2-2, "},
		{"limit_conn_zone a zone=x:1m; server { location /a/../b { limit_conn x 1; } }", `no url of Diana is like`},
		{"limit_conn_zone a zone=x:1m; server { location /ü { limit_conn x 1; } }", `url: "/%C3%BC"`},
		{"limit_conn_zone a zone=x:1m; server { location /100% { limit_conn x 1; } }", `url: "/100%25"`},
		{"limit_conn_zone a zone=x:1m; server { location ~ ^/a\\.b/?$ { limit_conn x 1; } }", `url: /a.b`},
		{"limit_conn_zone a zone=x:1m; server { location ~ ^/v1/ { limit_conn x 1; } }", "url: /v1\n    rules:\n      - {"},
		{"limit_conn_zone a zone=x:1m; server { location ~ ^/v1/ { } location /v1/a { limit_conn x 1; } }", `does not apply this limit to the location "~ ^/v1/"`},
		{"limit_conn_zone a zone=x:1m; server { location ^~ /v1/ { limit_conn x 1; } location ~ a { } }", "url: /v1\n    rules:\n      - {"},
		{"limit_conn_zone a zone=x:1m; server { location ^~ /v1/ { limit_conn x 1; location ~ a { limit_conn x 2; } } }", "mode: shadow"},
		{"limit_conn_zone a zone=x:1m; server { location /a { limit_conn x 1; } location =/a/b { limit_conn x 1; } }", "url: /a\n    rules:\n      - {name: x, actor: all, algo: C, rpu: 1} #"},
	} {
		result, err := Nginx("a", row.text, "")
		if err != nil {
			if !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v", row.text, err)
			}
			continue
		}
		checkResult(t, result)
		if !strings.Contains(result.YAML, row.want) {
			t.Errorf("%s: expected %s in\n%s", row.text, row.want, result.YAML)
		}
	}
}
