// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The hook scripts/commit-msg rejects a subject that is too long or not imperative.
func TestSubjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message string
		good    bool
	}{
		{"redisstore: flush pending refunds on Close\n\nBecause they were lost.\n", true},
		{"# a comment of the editor\n\nDocument the console\n", true},
		{"limit, memstore: process a batch of charges\n", true},
		{"Merge the rooms of the gateway: upstream, handover, and all of the other ones of it\n", true},
		{"fixup! diana: adds a thing\n", true},
		{"rule: 限制一个很长的名字，它有很多个汉字，但是不超过七十二个字符\n", true},
		{"redisstore: flush all of the pending refunds of each limiter on its Close\n", false},
		{"diana: flushes pending refunds\n", false},
		{"diana: flushed pending refunds\n", false},
		{"flushing pending refunds\n", false},
		{"diana: flush pending refunds.\n", false},
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, []byte(c.message), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(filepath.Join("..", "..", "scripts", "commit-msg"), file)
		command.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
		out, err := command.CombinedOutput()
		if (err == nil) != c.good {
			t.Errorf("%q: %v %s, expected good %t", c.message, err, out, c.good)
		}
	}
}
