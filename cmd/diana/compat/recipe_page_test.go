// SPDX-License-Identifier: MIT

package compat

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recipeFile matches a block of a page that is a file of a gateway. Its first line is a comment with the
// path of the file.
var recipeFile = regexp.MustCompile("(?ms)^```[a-z]+\n((?:#|--) (/etc/\\S+)\n.*?)^```$")

// page returns the text of a page of docs/gateways.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../docs/gateways", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// filesOf returns the files of a page by their paths, after some edits of the page.
func filesOf(t *testing.T, name string, edits []string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, b := range recipeFile.FindAllStringSubmatch(replaced(t, page(t, name), edits...), -1) {
		if files[b[2]] != "" {
			t.Fatalf("%s has %s twice", name, b[2])
		}
		files[b[2]] = b[1]
	}
	return files
}

// replaced returns a text in which each old string is replaced by the new one behind it in the list. An old
// string that the text lacks fails the test, because the page and the test then differ.
func replaced(t *testing.T, text string, oldNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("the page lacks %q in\n%s", oldNew[i], text)
		}
	}
	return strings.NewReplacer(oldNew...).Replace(text)
}
