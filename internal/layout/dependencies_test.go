// SPDX-License-Identifier: MIT

package layout

import (
	"os/exec"
	"strings"
	"testing"
)

// The library needs the standard library, one YAML package and one Redis client, and nothing else.
func TestLibraryHasTwoDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		allowed := false
		for _, prefix := range []string{
			"github.com/diana-limiter/diana", "go.yaml.in/yaml/", "github.com/redis/rueidis",
			"golang.org/x/sys", // of the Redis client
		} {
			allowed = allowed || strings.HasPrefix(path, prefix)
		}
		if !allowed {
			t.Errorf("the library brings in %s", path)
		}
	}
}
