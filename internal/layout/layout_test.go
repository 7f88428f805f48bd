// SPDX-License-Identifier: MIT

// Package layout holds the promises about the whole tree: which package may import which, how many names the
// library exports, and what it depends on.
package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layout is the layout of the repository: for each package, the packages of the repository that
// it may import. A package may import only packages on lines below its own. Test files are not
// bound to the layout.
var layout = []struct {
	pkg     string
	imports string
}{
	// Programs.
	{"cmd/diana", ". cmd/diana/internal/admin cmd/diana/internal/command cmd/diana/internal/convert cmd/diana/internal/gateway cmd/diana/internal/live cmd/diana/internal/ratelimit cmd/diana/internal/simulate cmd/diana/internal/versions cmd/diana/internal/weblog config config/diff internal/apikeys internal/bounds internal/descriptors internal/plan limit memstore replay rule"},
	{"cmd/diana/internal/gateway", ". cmd/diana/internal/actor cmd/diana/internal/admin cmd/diana/internal/certificate cmd/diana/internal/chain cmd/diana/internal/clientconn cmd/diana/internal/command cmd/diana/internal/decoders cmd/diana/internal/forwardauth cmd/diana/internal/handover cmd/diana/internal/history cmd/diana/internal/logs cmd/diana/internal/upstream cmd/diana/internal/versions cmd/diana/internal/whatif config envoy internal/paths internal/plan internal/respond prometheus"},
	{"cmd/diana/internal/ratelimit", ". cmd/diana/internal/admin cmd/diana/internal/certificate cmd/diana/internal/logs config envoy prometheus"},
	{"cmd/diana/internal/admin", ". cmd/diana/internal/adminapi cmd/diana/internal/command cmd/diana/internal/console cmd/diana/internal/history cmd/diana/internal/live config envoy internal/plan limit prometheus"},
	{"cmd/diana/internal/handover", ""},
	{"cmd/diana/internal/upstream", "cmd/diana/internal/clientconn cmd/diana/internal/command cmd/diana/internal/logs config internal/paths internal/plan internal/respond rule"},
	{"cmd/diana/internal/decoders", "internal/answer internal/respond"},
	{"cmd/diana/internal/clientconn", "cmd/diana/internal/chain"},
	{"cmd/diana/internal/certificate", ""},
	{"cmd/diana/internal/console", ". cmd/diana/internal/adminapi config internal/plan"},
	{"cmd/diana/internal/live", ". cmd/diana/internal/adminapi config config/diff internal/minutes limit rule"},
	{"cmd/diana/internal/actor", ". cmd/diana/internal/adminapi internal/plan limit rule"},
	{"cmd/diana/internal/whatif", ". cmd/diana/internal/adminapi cmd/diana/internal/history cmd/diana/internal/simulate cmd/diana/internal/weblog config config/diff internal/plan rule"},
	{"cmd/diana/internal/history", ". cmd/diana/internal/command cmd/diana/internal/logs cmd/diana/internal/weblog config internal/names internal/plan rule"},
	{"cmd/diana/internal/forwardauth", ". config internal/httptext internal/plan internal/respond rule"},
	{"cmd/diana/internal/convert", "config internal/bounds internal/descriptors internal/yamltext rule"},
	{"cmd/diana/internal/simulate", ". cmd/diana/internal/command cmd/diana/internal/weblog config internal/paths internal/plan internal/top limit rule"},
	{"cmd/diana/internal/versions", "cmd/diana/internal/adminapi config internal/bounds internal/plan internal/track internal/yamltext limit rule source"},
	{"cmd/diana/internal/weblog", "internal/httptext"},
	{"cmd/diana/internal/adminapi", "config"},
	{"cmd/diana/internal/logs", ". cmd/diana/internal/chain internal/paths internal/plan"},
	{"cmd/diana/internal/command", ". config internal/bounds internal/names internal/paths internal/plan jwt rule source/etcd source/zookeeper"},
	{"cmd/diana/internal/chain", ""},
	{"cmd/diana/internal/exchange", ""}, // of its tests
	{"cmd/diana/compat", ""},
	{"cmd/diana/consoletest", ""},
	{"examples/extension", ". config limit rule source"},
	{"examples/llm", ""},
	{"bench", "bench/measure bench/page bench/rivals . config limit memstore redisstore internal/redistest internal/testproc"},

	{"bench/page", "bench/measure"},
	{"bench/rivals", "bench/measure . adapters/connect adapters/echo adapters/fiber adapters/gin adapters/grpc adapters/hertz internal/redistest"},
	{"bench/measure", "internal/redistest internal/testproc"},

	// Uses of the limiter.
	{"envoy/compat", ""},
	{"envoy", ". config config/diff internal/bounds internal/descriptors internal/httptext internal/respond limit rule"},
	{"jwt", "config rule"},
	{"prometheus", "."},
	{"adapters/otel", "."},
	{"adapters/caddy", "."},
	{"adapters/grpc", ". internal/calls internal/native rate"},
	{"adapters/connect", ". internal/calls internal/native"},
	{"internal/calls", ". rule"},
	{"adapters/rpctest", ". config"}, // of their tests
	{"adapters/adaptertest", ". config internal/testproc"},
	{"adapters/gin", "."},
	{"adapters/echo", "."},
	{"adapters/fiber", ". internal/pooled"},
	{"adapters/hertz", ". internal/pooled"},
	{"internal/pooled", ". internal/established internal/native internal/respond"},
	{"internal/native", ". internal/established"},
	{"client", ". internal/actors internal/fields internal/waitqueue"},

	// The limiter, and what it is made of.
	{".", "config config/diff limit memstore redisstore rule source " +
		"internal/answer internal/bounds internal/credentials internal/decide internal/established internal/fields internal/follow internal/takeover internal/minutes internal/plan internal/redisfault internal/refusals internal/requestbody internal/respond"},
	{"internal/follow", "config source internal/bounds internal/track"},
	{"internal/respond", "internal/answer internal/fields internal/httptext internal/paths internal/requestbody limit memstore rule"},
	{"internal/decide", "internal/bounds internal/credentials internal/minutes internal/plan internal/refusals internal/requestbody internal/waitqueue limit memstore redisstore rule"},
	{"internal/credentials", "internal/httptext rule"},
	{"internal/established", "rule"},
	{"internal/refusals", "internal/plan internal/top rule"},
	{"internal/plan", "internal/answer internal/bounds internal/fields internal/httptext internal/names internal/paths internal/requestbody limit rule"},
	{"internal/fields", "internal/bounds internal/httptext"},

	// Stores, and other uses of stores.
	{"rate", "internal/bounds internal/waitqueue limit memstore"},
	{"memstore", "internal/takeover internal/waitqueue limit"},
	{"redisstore", "internal/minutes internal/redisfault internal/waitqueue limit"},
	{"storetest", "internal/bounds limit replay"},
	{"replay", "internal/bounds limit"},

	// Configurations.
	{"internal/descriptors", "config internal/bounds internal/yamltext limit rule"},
	{"config/diff", "config internal/bounds internal/bytesize internal/names limit rule"},
	{"config", "internal/actors internal/apikeys internal/answer internal/bounds internal/bytesize internal/httptext internal/jsonscan internal/names internal/paths internal/yamltext limit rule source"},
	{"internal/requestbody", "internal/actors internal/bounds internal/jsonscan rule"},
	{"internal/actors", "internal/httptext rule"},
	{"internal/apikeys", "rule"},
	{"internal/names", "limit rule"},
	{"internal/paths", "internal/httptext rule"},
	{"rule", "internal/bounds internal/httptext limit"},
	{"source/sourcetest", "internal/track internal/redistest source"},
	{"internal/track", "source"},
	{"source/etcd/etcdtest", "internal/etcdtest internal/testproc"},
	{"source/etcd", "internal/hosts source"},
	{"source/zookeeper", "internal/hosts source"},
	{"source", ""},

	// Packages at the bottom.
	{"internal/takeover", "limit"},
	{"limit", "internal/bounds"},
	{"internal/answer", "internal/bounds internal/httptext internal/jsonscan"},
	{"internal/bounds", ""},
	{"internal/hosts", ""},
	{"internal/httptext", ""},
	{"internal/bytesize", ""},
	{"internal/jsonscan", ""},
	{"internal/minutes", ""},
	{"internal/redisfault", ""},
	{"internal/top", ""},
	{"internal/waitqueue", ""},
	{"internal/yamltext", ""},

	// Helpers of tests, and tools.
	{"internal/billtest", ""},
	{"internal/etcdtest", "internal/testproc"},
	{"internal/redistest", "internal/testproc"},
	{"internal/testproc", ""},
	{"internal/race", ""},
	{"tools/clients", ""},
	{"tools/modules", ""},
	{"tools/release", ""},
	{"tools/vale", ""},
}

const (
	module = "github.com/diana-limiter/diana"
	root   = "../.." // the folder of the module
)

// Every package imports only what the layout allows.
func TestLayout(t *testing.T) {
	t.Parallel()
	allowed, floor := map[string][]string{}, map[string]int{}
	for i, row := range layout {
		if _, twice := allowed[row.pkg]; twice {
			t.Errorf("%s is in the layout twice", row.pkg)
		}
		allowed[row.pkg], floor[row.pkg] = strings.Fields(row.imports), i
	}
	for _, row := range layout {
		for _, to := range allowed[row.pkg] {
			if floor[to] <= floor[row.pkg] {
				t.Errorf("%s may import %s, which is not on a line below", row.pkg, to)
			}
		}
	}
	for pkg, imports := range importsOf(t) {
		list, ok := allowed[pkg]
		if !ok {
			t.Errorf("package %s is not in the layout", pkg)
		}
		for _, to := range imports {
			if !slices.Contains(list, to) {
				t.Errorf("%s imports %s, but the layout does not allow it", pkg, to)
			}
		}
	}
}

// DESIGN.md shows every package of the library and the program, in the order of the layout.
func TestLayoutInDesign(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(design), "## The layout\n")
	picture, _, _ = strings.Cut(picture, "\nA package imports")
	lines := strings.Split(picture, "\n")
	lineOf := func(pkg string) int {
		return slices.IndexFunc(lines, func(line string) bool {
			names, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
			return slices.Contains(strings.Split(names, ", "), pkg)
		})
	}
	line := map[string]int{}
	for _, row := range layout {
		if helper := strings.HasSuffix(row.pkg, "test") || strings.HasSuffix(row.pkg, "testproc") || row.pkg == "internal/race"; helper && row.pkg != "storetest" {
			continue
		}
		switch row.pkg {
		case "cmd/diana/compat", "cmd/diana/internal/exchange", "envoy/compat", "examples/extension", "examples/llm", "tools/clients", "tools/modules", "tools/release", "tools/vale",
			"bench", "bench/measure", "bench/page", "bench/rivals":
			continue
		}
		pkg := strings.TrimPrefix(row.pkg, "cmd/diana/")
		if pkg == "." {
			pkg = "diana"
		}
		if line[row.pkg] = lineOf(pkg); line[row.pkg] < 0 {
			t.Errorf("DESIGN.md does not show %s", row.pkg)
		}
	}
	for _, row := range layout {
		from, shown := line[row.pkg]
		for _, to := range strings.Fields(row.imports) {
			if below, ok := line[to]; ok && shown && below < from {
				t.Errorf("%s may import %s, which DESIGN.md shows above it", row.pkg, to)
			}
		}
	}
}

// importsOf returns, for each package of the repository, the packages of the repository that its
// files import. It does not read test files.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, d fs.DirEntry, err error) error {
		name := path.Base(file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules"):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Dir(file)
		imports[pkg] = append(imports[pkg], []string{}...)
		for _, i := range parsed.Imports {
			to, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if to == module {
				imports[pkg] = append(imports[pkg], ".")
			} else if within, ok := strings.CutPrefix(to, module+"/"); ok {
				imports[pkg] = append(imports[pkg], within)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}
