// SPDX-License-Identifier: MIT

package limit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/replay"
)

// The scripts in testdata say what each algorithm does, row by row.
func TestReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.replay")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			script, err := replay.Parse(file, f, limit.Algorithms())
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			if err := script.Run(&replay.Meters{}); err != nil {
				t.Errorf("\n%v", err)
			}
		})
	}
}
