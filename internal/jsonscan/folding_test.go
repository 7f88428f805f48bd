// SPDX-License-Identifier: MIT

package jsonscan

import "testing"

// Keys match in any letter case, and two cases of one key are one key twice.
func TestNewFolding(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, want string
		twice      bool
	}{
		{`{"model":"a"}`, "a", false}, {`{"MODEL":"a"}`, "a", false}, {`{"mOdEl":"a","x":1,"X":2}`, "a", false},
		{`{"model":"a","Model":"b"}`, "b", true}, {`{"modell":"a","mode":"b"}`, "", false}, {`{"\u004dODEL":"a"}`, "a", false},
	} {
		s := NewFolding(100, "/model", "/Model", "/deep/a")
		if err := s.ScanAll([]byte(tc.text)); err != nil {
			t.Fatal(err)
		}
		if got := string(s.Value(0).Text); got != tc.want || string(s.Value(1).Text) != got || s.Twice() != tc.twice {
			t.Errorf("%s: %q and %q, twice %v", tc.text, got, s.Value(1).Text, s.Twice())
		}
	}
	s := NewFolding(100, "/sk")
	if err := s.ScanAll([]byte("{\"\u017f\u212a\":\"a\"}")); err != nil || string(s.Value(0).Text) != "a" {
		t.Errorf("letters of more bytes: %q, %v", s.Value(0).Text, err)
	}
	exact := New(100, "/model", "/Model")
	if err := exact.ScanAll([]byte(`{"model":"a","Model":"b"}`)); err != nil || exact.Twice() || string(exact.Value(1).Text) != "b" {
		t.Errorf("New: %q, %v", exact.Value(1).Text, err)
	}
}
