// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// The test scripts of the example pass.
func TestExampleScripts(t *testing.T) {
	t.Parallel()
	const algorithms, costs, rules = "../../examples/replay/algorithms.replay", "../../examples/replay/costs.replay", "../../examples/replay/rules.replay"
	const overload = "../../examples/replay/overload.replay"
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"test", algorithms, costs, rules, overload}, &out, &errs); status != command.StatusGood {
		t.Errorf("status %d\n%s", status, errs.String())
	}
	if want := algorithms + ": ok, 23 rows\n" + costs + ": ok, 8 rows\n" + rules + ": ok, 18 rows\n" + overload + ": ok, 3 rows\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}

// docs/replay.md has every key that the reader of logs knows.
func TestReplayKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range weblog.Keys {
		for _, key := range row.Keys {
			if key != "msg" && !strings.Contains(string(text), "`"+key+"`") {
				t.Errorf("docs/replay.md does not have %s", key)
			}
		}
	}
}
