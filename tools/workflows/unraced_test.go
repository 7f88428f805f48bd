// SPDX-License-Identifier: MIT

package workflows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// No test is skipped in every run of "make test": scripts/unraced names each test that the race detector skips
// or cuts short, and "make test" runs those without it.
func TestUnraced(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(filepath.Join(root, "scripts", "unraced")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	runs := map[string]*regexp.Regexp{} // by folder
	for line := range strings.Lines(string(out)) {
		folder, tests, _ := strings.Cut(strings.TrimSpace(line), " ")
		runs[filepath.Join(root, folder)] = regexp.MustCompile(tests)
	}
	all := testFiles(t)
	for folder := range runs {
		if all[folder] == nil {
			t.Errorf("scripts/unraced names %s, which is in no module of go.work", folder)
		}
	}
	guarded := 0
	for folder, files := range all {
		for _, f := range files {
			unraced := slices.ContainsFunc(f.Comments, func(c *ast.CommentGroup) bool { return c.List[0].Text == "//go:build !race" })
			for _, d := range f.Decls {
				fun, ok := d.(*ast.FuncDecl)
				if !ok || !mentions(fun, "race.Enabled") && (!unraced || !strings.HasPrefix(fun.Name.Name, "Test")) {
					continue
				}
				guarded++
				if run := runs[folder]; run == nil || !slices.ContainsFunc(callers(files, fun), run.MatchString) {
					t.Errorf("%s: no test that uses %s runs without the race detector", folder, fun.Name.Name)
				}
			}
		}
	}
	if guarded < 30 {
		t.Errorf("%d functions ask for the race detector", guarded)
	}
	if !strings.Contains(string(read(t, filepath.Join(root, "Makefile"))), "scripts/unraced") {
		t.Error("the Makefile does not run the tests of scripts/unraced")
	}
}

// testFiles returns the test files of each folder that has some, but for the tools: they are not in go.work.
func testFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	all := map[string][]*ast.File{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "node_modules" || e.Name() == "tools"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		all[filepath.Dir(name)] = append(all[filepath.Dir(name)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// callers returns the tests that reach a function, itself included.
func callers(files []*ast.File, of *ast.FuncDecl) []string {
	reach := map[string]bool{of.Name.Name: true}
	for before := 0; before < len(reach); {
		before = len(reach)
		for _, f := range files {
			for _, d := range f.Decls {
				if fun, ok := d.(*ast.FuncDecl); ok && slices.ContainsFunc(slices.Collect(maps.Keys(reach)), func(name string) bool { return mentions(fun, name) }) {
					reach[fun.Name.Name] = true
				}
			}
		}
	}
	maps.DeleteFunc(reach, func(name string, _ bool) bool { return !strings.HasPrefix(name, "Test") })
	return slices.Collect(maps.Keys(reach))
}

// mentions reports whether the body of a function uses a name, or one of a package as in "race.Enabled".
func mentions(fun *ast.FuncDecl, name string) (found bool) {
	if fun.Body != nil {
		ast.Inspect(fun.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				found = found || n.Name == name
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				found = found || ok && id.Name+"."+n.Sel.Name == name
			}
			return !found
		})
	}
	return found
}
