// SPDX-License-Identifier: MIT

package adaptertest

import (
	"testing"
)

// testCase is a case of the table. limits are in YAML; in it UPSTREAM is the URL of another server,
// PATTERN is Framework.Pattern, and KEYS is a file with knownKey.
type testCase struct {
	name   string
	limits string
	setup  Setup
	run    func(s *session)
}

// Run runs all cases.
func Run(t *testing.T, f Framework) {
	for _, list := range [][]testCase{decisionCases(f), chargeCases(f), slotCases(), bodyCases(), identityCases()} {
		for i := range list {
			tc := &list[i]
			if f.NoOptions && (tc.setup.Route || tc.setup.Actor || tc.setup.Refuse) {
				continue
			}
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				tc.run(start(t, f, tc.limits, tc.setup))
			})
		}
	}
}
