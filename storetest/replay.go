// SPDX-License-Identifier: MIT

package storetest

import (
	"embed"
	"io/fs"
	"path"
	"testing"
	_ "time/tzdata" // the scripts need zones on every machine

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/replay"
)

// The scripts define each algorithm row by row.
//
//go:embed testdata/*.replay
var scripts embed.FS

// Replay plays each script on a Store of its own, which must use the moment that a call gets.
func (s Suite) Replay(t *testing.T, open func(t *testing.T) limit.Store) {
	if s.Scripts == nil {
		s.Scripts = scripts
	}
	played := 0
	err := fs.WalkDir(s.Scripts, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".replay" {
			return err
		}
		played++
		t.Run(path.Base(name), func(t *testing.T) {
			t.Parallel()
			f, err := s.Scripts.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }() // it was only read
			script, err := replay.Parse(path.Base(name), f, s.algorithms())
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			if err := script.Run(open(t)); err != nil {
				t.Errorf("\n%v", err)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if played == 0 {
		t.Error("there is no .replay file")
	}
}
