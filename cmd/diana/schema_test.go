// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

var update = flag.Bool("update", false, "write docs/diana.schema.json")

const schemaFile = "../../docs/diana.schema.json"

// The schema in the repository is the one that the program prints.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"schema"}, &out, &errs); status != command.StatusGood || errs.Len() > 0 {
		t.Fatal(status, errs.String())
	}
	if *update {
		if err := os.WriteFile(schemaFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(got, out.Bytes()) {
		t.Errorf("%s is stale: go test ./cmd/diana -run Schema -update (%v)", schemaFile, err)
	}
}

func compileSchema(t *testing.T, v config.Vocabulary) *jsonschema.Schema {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("diana.schema.json", text); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("diana.schema.json")
}

// withTextKeys makes texts of the keys of mappings, as editors do: YAML also has numbers there.
func withTextKeys(of any) any {
	switch of := of.(type) {
	case map[any]any:
		texts := map[string]any{}
		for key, value := range of {
			texts[fmt.Sprint(key)] = withTextKeys(value)
		}
		return texts
	case map[string]any:
		for key, value := range of {
			of[key] = withTextKeys(value)
		}
	case []any:
		for i := range of {
			of[i] = withTextKeys(of[i])
		}
	}
	return of
}

// fits returns the complaint of an editor about a text, or nil.
func fits(schema *jsonschema.Schema, text []byte) error {
	// The library reads YAML 1.2, but refuses a text that says so.
	text = bytes.ReplaceAll(text, []byte("%YAML 1.2\n"), []byte("%YAML 1.1\n"))
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	for n := 0; err == nil; n++ {
		var document any
		switch err = loader.Load(&document); {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case err != nil:
			return err
		}
		var inJSON []byte
		if inJSON, err = json.Marshal(withTextKeys(document)); err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(inJSON))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return err
		}
	}
	return err
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// goodWithoutSchema are valid, but the schema does not accept them.
var goodWithoutSchema = map[string]string{
	"source-001-as-printed.good.yaml": "colons without a space, which YAML takes for text",
	"remote/short.good.yaml":          "the same",
}

// badWithSchema are not valid, and no schema can say why.
var badWithSchema = map[string]string{
	"cannot-keep.bad.yaml":          "whether an algorithm can keep a limit is known to its code",
	"cannot-keep-2.bad.yaml":        "the same",
	"centre-url-11.bad.yaml":        "what else a URL needs is known to the source's code",
	"centre-url-2.bad.yaml":         "the same",
	"centre-url-3.bad.yaml":         "the same",
	"centre-url-4.bad.yaml":         "the same",
	"centre-url-5.bad.yaml":         "the same",
	"centre-url-6.bad.yaml":         "the same",
	"centre-url-7.bad.yaml":         "the same",
	"centre-url-8.bad.yaml":         "the same",
	"centre-url-9.bad.yaml":         "the same",
	"credentials-alone.bad.yaml":    "two keys of which one needs the other",
	"credentials-left-out.bad.yaml": "two keys that are apart",
	"cost-over-limit.bad.yaml":      "what a limit allows at most is known to its algorithm's code",
	"cost-over-override.bad.yaml":   "the same",
	"weights-5.bad.yaml":            "a mapping without names",
	"weights-7.bad.yaml":            "one of several numbers is above 0",
	"duplicate-name.bad.yaml":       "two rules that are apart",
	"duplicate-url.bad.yaml":        "two entries that are apart",
	"settings-twice.bad.yaml":       "two documents",
	"line-separator.bad.yaml":       "how it is written: a character that YAML does not allow",
	"name-of-two-lines.bad.yaml":    "how it is written: on two lines",
	"secret-11.bad.yaml":            "the same",
	"overrides-merge-key.bad.yaml":  "how it is written: editors may know merge keys, which are not of YAML 1.2",
	"syntax-merge-key.bad.yaml":     "how it is written: editors may know merge keys, which are not of YAML 1.2",
	"syntax-tag-directive.bad.yaml": "how it is written: with a directive",
	"remote/divert.bad.yaml":        "good for a file, and not for a centre",
	"remote/no-limits.bad.yaml":     "good for a file, and not for a centre",
}

// The schema accepts every example and finds every mistake, except the listed ones.
func TestSchemaFits(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t, command.Vocabulary())
	const folder = "../../config/testdata/"
	listed := maps.Clone(goodWithoutSchema)
	maps.Copy(listed, badWithSchema)
	for _, good := range []bool{true, false} {
		list, kind := badWithSchema, "*.bad.yaml"
		if good {
			list, kind = goodWithoutSchema, "*.good.yaml"
		}
		files, _ := filepath.Glob(folder + kind)
		remote, _ := filepath.Glob(folder + "remote/" + kind)
		if len(files) == 0 || len(remote) == 0 {
			t.Fatalf("%s: none", kind)
		}
		for _, file := range append(files, remote...) {
			name := strings.TrimPrefix(file, folder)
			why := list[name]
			delete(listed, name)
			if err := fits(schema, mustRead(t, file)); (err == nil) != (good == (why == "")) {
				t.Errorf("%s (listed: %q): %v", name, why, err)
			}
		}
	}
	if len(listed) > 0 {
		t.Errorf("listed and not there: %v", listed)
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	documents, _ := filepath.Glob("../../docs/*.md")
	blocks := 0
	for _, file := range append(documents, "../../README.md", "internal/command/demo.yaml") {
		if filepath.Base(file) == "extending.md" {
			continue // in words of another program
		}
		texts := [][]byte{mustRead(t, file)}
		if filepath.Ext(file) == ".md" {
			found := block.FindAllSubmatch(texts[0], -1)
			texts = nil
			for _, b := range found {
				texts = append(texts, b[1])
			}
			blocks += len(texts)
		}
		for _, text := range texts {
			if err := fits(schema, text); err != nil {
				t.Errorf("%s: %v in\n%s", file, err, text)
			}
		}
	}
	if blocks < 4 {
		t.Errorf("only %d examples", blocks)
	}
}

// The schema and the parser agree on every single value.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t, command.Vocabulary())
	for form, values := range map[string][]string{
		"{url: %s, rules: [{rpu: 1}]}": {
			"/", "/a/b/", "/a//b", "/{id}", "/a/{b}/c", "POST /a", "GET /", "'GET   /a b'", "X-Y /", "/%20", "'/a.b;c=d'", "/é",
			"a", "''", "post /a", "'/a b'", "'/a?b'", "'/a#b'", "'/a{b}'", "'/{}'", "'/{a}b'", "5", "null", "[/]", "'POST a'", "' /a'", "'G(T /'",
		},
		"{Url: /, rules: [{rpu: %s}]}":                         {"0", "1", "1000000000", "1000000001", "-1", "'1'", "x", "1.5", "null", "[1]"},
		"{url: /, rules: [{rpu: 1000000000, cost: %s}]}":       {"1", "1000000", "header:X", "header:x-y", "client:X", "'client:X'", "0", "1000001", "'5'", "1.5", "null", "[1]", "X", "'header:'", "'header:a b'", "cookie:x", "''"},
		"{url: /, rules: [{rpu: 5, charge: %s}]}":              {"[401]", "[100, 599]", "[]", "401", "[99]", "[600]", "['401']", "[401, 401]", "null", "[4xx]"},
		"{url: /, rules: [{rpu: 5, charge: [401], algo: %s}]}": {"TB", "w", "sliding window", "SL", "LB", "leaky bucket", "c"},
		"{url: /, bandwidth: %s}": {
			"1k", "50k", "1000", "1000000000", "1000m", "999m", "1000000k", "'50k'", "{rate: 50k}", "{rate: 50k, actor: all}", "{rate: 50k, actor: [ip, device]}",
			"999", "1000000001", "1001m", "2000m", "1000001k", "9999999k", "0k", "05k", "k", "50K", "'50'", "5 k", "0.5m", "null", "[50k]", "{}", "{actor: ip}", "{rate: 1}", "{rate: 50k, burst: 1}", "{rate: 50k, actor: [ip]}", "{rate: 50k, actor: x}",
		},
		"{url: /, bandwidth: 50k, rules: %s}": {"[]", "[{rpu: 1}]", "null"},
		"{url: /, rules: %s}":                 {"[]", "{}", "null", "[{}]", "[{rpu: 1}, {rpu: 2}]", "[{rpu: 1, x: 2}]", "[1]"},
		"{url: /, rules: [{rpu: 1, actor: %s}]}": {
			"all", "account", "actor", "device", "ip", "header:X", "header:x-y", "cookie:a", "'cookie:a b'", "query:q", "[ip, account]", "[ip, account, header:X]",
			"everyone", "header", "'header:'", "'header:a b'", "cookie", "ALL", "[ip]", "[]", "[ip, all]", "[ip, ip]", "[ip, device, account, query:q]", "5", "null", "ip:x",
		},
		"{url: /, rules: [{rpu: 1, unit: %s}]}": {
			"second", "day", "10s", "1h30m", "1.5s", ".5s", "100ms", "5000us", "+1s", "100µs0.1s",
			"Second", "week", "total", "fortnight", "10", "10 s", "s", "-1s", "null", "[1s]", "1d", "''",
		},
		"{url: /, rules: [{rpu: 1, algo: W, %s}]}": {
			"unit: week", "unit: month", "unit: year", "unit: total", "unit: Month", "unit: day, zone: Asia/Tokyo", "unit: month, zone: Asia/Tokyo",
			"unit: hour, zone: UTC", "unit: total, zone: UTC", "unit: minute, zone: UTC", "zone: UTC", "unit: day, zone: ''", "unit: day, zone: 'a b'",
			"unit: day, zone: 5", "unit: month, align: first", "unit: month, align: clock", "unit: day, zone: Asia/Tokyo, align: first",
			"overrides: {10.0.0.0/8: {rpu: 999999999999999}}", "overrides: {10.0.0.0/8: {rpu: 1000000000000000}}",
		},
		"{url: /, rules: [{rpu: 999999999999999, algo: W, cost: %s}]}":              {"1000001", "999999999999999", "1000000000000000"},
		"{url: /, rules: [{rpu: %s, algo: window}]}":                                {"999999999999999", "1000000000000000"},
		"{url: /, rules: [{rpu: 1, algo: SW, overrides: {10.0.0.0/8: {rpu: %s}}}]}": {"1000000000", "1000000001"},
		"{url: /, rules: [{rpu: 1, algo: %s}]}":                                     {"TB", "tb", "Token Bucket", "w", "SLIDING log", "C", "XY", "T B", "tokenbucket", "5", "null", "''"},
		"{url: /, rules: [{rpu: 1, %s}]}": {
			"scope: local", "scope: global", "scope: Local", "mode: shadow", "mode: on", "burst: 1", "burst: 0", "algo: LB, queue: 0", "algo: LB, queue: -1",
			"algo: SW, slices: 2", "algo: SW, slices: 1", "algo: SW, slices: 100", "algo: SW, slices: 101", "algo: w, align: first", "algo: W, align: last",
			"queue: 1", "slices: 2", "align: first", "algo: C, unit: second", "algo: Concurrency, unit: second", "algo: c", "algo: SL, burst: 1", "algo: TB, burst: 1",
			"warmup: 1m", "warmup: 0", "warmup: '0'", "warmup: 0s", "warmup: 1", "warmup: x", "algo: TB, warmup: 10m", "algo: SW, warmup: 1s", "algo: LB, warmup: 0",
			"scope: global, on_error: open", "scope: global, on_error: share", "scope: global, on_error: never", "scope: local, on_error: open", "on_error: open",
			"name: x", "name: ''", "name: 5", "name: \"a\\nb\"", "name: \"é 限\"", "Name: x", "Rpu: 1",
		},
		"{url: /, rules: [{rpu: 1, actor: account, except: %s}]}": {
			"[]", "[ann]", "[10.0.0.0/8, '::1', '=x']", "['5']", "ann", "[5]", "null", "['']", "[ann, ann]", "[[ann]]", "{}",
		},
		"{url: /, rules: [{rpu: 1, actor: account, overrides: %s}]}": {
			"{}", "{ann: {rpu: 1}}", "{10.0.0.0/8: {burst: 1}}",
			"{ann: {}}", "{ann: 5}", "[ann]", "null", "{ann: null}", "{ann: {rpu: -1}}", "{ann: {unit: day}}", "{'': {rpu: 1}}", "{ann: {queue: 1}}",
		},
		"{url: /, rules: [{rpu: 1, algo: lb, overrides: {10.0.0.0/8: {%s}}}]}": {
			"rpu: 0", "queue: 0", "rpu: 1, queue: 5", "burst: 1", "slices: 2",
		},
		"{url: /, rules: [{rpu: 1, algo: Sl, overrides: {10.0.0.0/8: {%s}}}]}": {
			"rpu: 0", "queue: 0", "burst: 1",
		},
		"{max_keys: %s}":                            {"1", "100000000", "0", "100000001", "x", "null"},
		"{response: %s}":                            {"{}", "{status: 400}", "{status: 599}", "{status: 200}", "{status: 600}", "{headers: true}", "{headers: false}", "{headers: 1}", "{headers: 'true'}", "null", "[]", "{x: 1}"},
		"{redis: {url: 'redis://h', %s}}":           {"timeout: 1ms", "timeout: 10s", "timeout: 50", "timeout: x", "prefix: a", "prefix: 'a b'", "prefix: 'a{b}'", "prefix: é", "prefix: 'a|~!z'", "username: u", "username: u, password: p", "password: p", "username: 'a b', password: p", "cluster: ['h:1']", "tls: 5", "x: 1"},
		"{redis: {url: %s}}":                        {"redis://h", "REDIS://h:1", "rediss://h/0", "redis://u:p@h:1/15", "'redis://[::1]:1/0'", "redis://h/", "redis://h//", "h:1", "http://h", "redis://", "redis:///0", "redis://:1/0", "redis://u@:1", "redis://h/x", "redis://h/00", "redis://h/0/1", "redis://h?a=b", "redis://h#a", "5"},
		"{redis: {cluster: %s}}":                    {"['h:1']", "['h:1', 'h:2']", "['[::1]:1']", "[]", "['h']", "['h:x']", "[':1']", "['h:1', 'h:1']", "['u@h:1']", "['a:b:1']", "h:1"},
		"{redis: {sentinel: %s}}":                   {"{master: m, addresses: ['h:1']}", "{master: m}", "{addresses: ['h:1']}", "{master: m, addresses: []}", "{master: m, addresses: ['h:1'], password: p}", "{master: m, addresses: ['h:1'], username: u}"},
		"{redis: %s}":                               {"{}", "null", "[]", "{timeout: 1s}", "{url: 'redis://h'}", "{url: 'redis://u@h', password: p}", "{url: 'rediss://h', tls: {}}", "{url: 'REDIS://h', tls: {}}", "{url: 'redis://h:0'}", "{url: 'redis://h:'}", "{cluster: ['h:1'], sentinel: {master: m, addresses: ['h:1']}}"},
		"{redis: {cluster: ['h:1'], tls: %s}}":      {"{}", "{ca: x}", "{certificate: x, key: y}", "{certificate: x}", "{key: x}", "{ca: ''}", "{ca: \"-----BEGIN X\"}", "{server_name: h}", "{server_name: '::1'}", "{server_name: 'h:1'}", "{server_name: 'a b'}", "null"},
		"{redis: {cluster: ['h:1'], password: %s}}": {"p", "env:P", "env:_p1", "file:/p", "file:p", "environment", "ENV:", "'env:'", "env:1", "env:a-b", "'file:'", "''", "5", "null"},
		"{remote: {url: %s}}":                       {"etcd://h/k", "zookeeper://h,i:2/a/b", "CONSUL://h/k", "https://h", "file:///x", "ftp://h/x", "/x", "etcdx://h/k", "5", "''"},
		"{remote: {url: 'https://h', %s}}":          {"username: u, password: p", "username: u", "token: env:T", "token: 'env:'", "tls: {}", "tls: {ca: x}", "snapshot: x", "snapshot: ''", "x: 1"},
		"{remote: %s}":                              {"{url: 'http://h', tls: {}}", "{url: 'etcd://h/k', tls: {}}", "{url: 'https://u:p@h', password: p}", "{url: 'https://u@h'}", "{url: 'https://h/@', password: p}", "{}", "null"},
		"{identity: {account: %s}}":                 {"[]", "[ip]", "[header:X, cookie:a, ip]", "[all]", "[account]", "[actor]", "[device]", "[x]", "ip", "[header:X, header:X]", "null"},
		"{identity: {trusted_proxies: %s}}":         {"[]", "[10.0.0.0/8, 192.0.2.1, '::1', '2001:db8::/32']", "[x]", "[10.0.0.0/8/8]", "['fe80::1%eth0']", "10.0.0.0/8", "[5]"},
		"%s":                                        {"[]", "{}", "null", "x", "[[]]", "{limits: []}", "{limits: null}", "{limits: {}}", "{limit: []}", "{url: /}", "{rules: [{rpu: 1}]}", "{url: /, Url: /, rules: [{rpu: 1}]}", "{url: /, rules: [{rpu: 1}], max_keys: 1}", "[{limits: []}]", "{remote: {}}"},
	} {
		good := 0
		for _, value := range values {
			text := []byte(fmt.Sprintf(form, value))
			_, parseErr := command.Vocabulary().Parse("x", text)
			schemaErr := fits(schema, text)
			if (parseErr == nil) != (schemaErr == nil) {
				t.Errorf("%s:\nparser: %v\nschema: %v", text, parseErr, schemaErr)
			}
			if parseErr == nil {
				good++
			}
		}
		if good == 0 || good == len(values) {
			t.Errorf("%s: %d of %d are good", form, good, len(values))
		}
	}
}

// A program with words of its own has another schema.
func TestSchemaOfOtherWords(t *testing.T) {
	t.Parallel()
	v := config.DefaultVocabulary()
	v.Algorithms = append(v.Algorithms, limit.Algorithm{Names: []string{"H", "half"}, Keys: []string{"queue"}})
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "tenant"}, rule.ActorKind{Kind: "claim", Named: true})
	v.Units["week"] = 7 * 24 * time.Hour
	more := v
	more.Sources = []source.Kind{{Schemes: []string{"zk", "zks"}}}
	for _, row := range []struct {
		words config.Vocabulary
		text  string
		good  bool
	}{
		{v, "{url: /, rules: [{rpu: 1, actor: tenant, unit: week}, {rpu: 2, algo: Half, queue: 1, actor: 'claim:sub'}]}", true},
		{v, "{url: /, rules: [{rpu: 1, algo: h, unit: week}]}", false},
		{v, "{url: /, rules: [{rpu: 1, actor: 'tenant:x'}]}", false},
		{v, "{url: /, rules: [{rpu: 1, actor: claim}]}", false},
		{v, "remote: {url: 'zk://h'}", false},
		{more, "remote: {url: 'zk://h'}", true},
		{more, "remote: {url: 'zks://h', tls: {}}", true},
		{more, "remote: {url: 'zk://h', tls: {}}", false},
		{more, "remote: {url: 'etcd://h/k'}", false},
		{config.Vocabulary{}, "{limits: []}", true},
		{config.Vocabulary{}, "{url: /, rules: [{rpu: 1, algo: TB}]}", false},
	} {
		if err := fits(compileSchema(t, row.words), []byte(row.text)); (err == nil) != row.good {
			t.Errorf("%s: %v", row.text, err)
		}
	}
}

// Each key has a description.
func TestSchemaDescribes(t *testing.T) {
	t.Parallel()
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct{ Description string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(command.Vocabulary().Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, d := range schema.Defs {
		for key, p := range d.Properties {
			names = append(names, name+"."+key)
			if len(p.Description) < 10 || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s.%s: %q", name, key, p.Description)
			}
		}
	}
	slices.Sort(names)
	if len(names) < 40 {
		t.Errorf("only %v", names)
	}
}
