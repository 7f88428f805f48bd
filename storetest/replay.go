// SPDX-License-Identifier: MIT

package storetest

import (
	"embed"
	"path"
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/replay"
)

// The scripts say what each algorithm does, row by row.
//
//go:embed testdata/*.replay
var scripts embed.FS

// Replay plays the scripts of every algorithm, each on a Store of its own, which goes by
// the moments that Take is given.
func Replay(t *testing.T, open func(t *testing.T) limit.Store) {
	files, err := scripts.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(file.Name(), func(t *testing.T) {
			t.Parallel()
			f, err := scripts.Open(path.Join("testdata", file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }() // it was only read
			script, err := replay.Parse(file.Name(), f, limit.Algorithms())
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			if err := script.Run(open(t)); err != nil {
				t.Errorf("\n%v", err)
			}
		})
	}
}
