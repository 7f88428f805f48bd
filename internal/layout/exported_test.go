// SPDX-License-Identifier: MIT

package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// library lists the packages that programs import. Package prometheus is not among them, because it
// is a module of its own.
var library = []string{
	".", "limit", "rule", "config", "config/diff", "source", "source/etcd", "source/sourcetest",
	"memstore", "redisstore", "rate", "client", "replay", "storetest",
}

// The library exports at most 135 names, because a user reads them all. Two of rule are what budgets of tokens need,
// and three of limit are what adaptive concurrency needs. Six of rule and config are what verified identities need.
// Prepared and rule.Native are what adapters and jobs need.
func TestExportedNames(t *testing.T) {
	t.Parallel()
	const most = 135
	total := 0
	var list []string
	for _, pkg := range library {
		names := exportedNames(t, pkg)
		total += len(names)
		list = append(list, fmt.Sprintf("%s %d: %s", pkg, len(names), strings.Join(names, " ")))
	}
	if total > most {
		t.Errorf("the library exports %d names, want at most %d:\n%s", total, most, strings.Join(list, "\n"))
	}
}

// exportedNames returns the exported names at the top level of a package. Methods and fields do not
// count, and neither do test files.
func exportedNames(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("package %s has no files, or: %v", pkg, err)
	}
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					add(decl.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name)
						}
					}
				}
			}
		}
	}
	return names
}
