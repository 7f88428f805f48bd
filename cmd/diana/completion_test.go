// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// printed returns what a command prints, which must succeed.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	if status := run(t.Context(), args, &out, &complaint); status != command.StatusGood {
		t.Fatalf("diana %s: status %d, %s", strings.Join(args, " "), status, complaint.String())
	}
	return out.String()
}

func TestComplete(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ line, want string }{
		{"", "serve init check diff explain replay test top reset key convert schema push exempt rollback ratelimit version completion"},
		{"se", "serve"},
		{"serve --up", "--upstream-timeout --upstream-tls-timeout --upstream-idle-timeout --upstream --upgrade"},
		{"serve --log-format ", "text json"},
		{"serve --log-format=json --conf", "--config"},
		{"serve --config ", ""}, // a file
		{"serve --config se", ""},
		{"serve --config check --adm", "--admin --admin-host --admin-token"},
		{"explain --adm", "--admin --admin-token"},
		{"completion ", "bash zsh fish"},
		{"convert ", "nginx envoy"},
		{"check ", ""}, // a file
		{"nothing --", "--help"},
	} {
		words := strings.Split(row.line, " ")
		got := strings.Join(strings.Fields(printed(t, append([]string{"complete", "--"}, words...)...)), " ")
		if got != row.want {
			t.Errorf("after %q: %q, want %q", row.line, got, row.want)
		}
	}
}

// The shells complete a line by the scripts. A shell that is not installed is skipped.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "diana")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for shell, script := range map[string]string{
		"bash": `source "$1"; COMP_WORDS=(diana serve --log-f); COMP_CWORD=2; _diana; echo "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { }; compadd() { echo "${(@P)2}" }; source "$1"; words=(diana serve --log-f); CURRENT=3; _diana`,
		"fish": `source $argv[1]; complete --do-complete 'diana serve --log-f'`,
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			file := filepath.Join(dir, shell)
			if err := os.WriteFile(file, []byte(printed(t, "completion", shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", script, shell, file}
			if shell == "fish" {
				args = []string{"-c", script, file}
			}
			cmd := exec.Command(shell, args...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != "--log-format" {
				t.Errorf("%q, %v, want --log-format", got, err)
			}
		})
	}
}

// Each command has a manual page, and the page has each of its flags.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	printed(t, "man", "--to", dir, "--date", "2026-01-02")
	commands := reflect.TypeFor[cli]()
	for i := range commands.NumField() {
		f := commands.Field(i)
		name := filepath.Join(dir, "diana-"+strings.ToLower(f.Name)+".1")
		_, hidden := f.Tag.Lookup("hidden")
		text, err := os.ReadFile(name)
		if (err != nil) != hidden {
			t.Errorf("%s: %v, hidden: %v", name, err, hidden)
		}
		if hidden {
			continue
		}
		for i := range f.Type.NumField() {
			if _, command := f.Type.Field(i).Tag.Lookup("cmd"); command && !strings.Contains(string(text), "diana\\-"+strings.ToLower(f.Name+"\\-"+f.Type.Field(i).Name)) {
				t.Errorf("%s does not name the command %s", name, f.Type.Field(i).Name)
			}
		}
		for flag := range strings.FieldsSeq(printed(t, "complete", "--", strings.ToLower(f.Name), "--")) {
			if !bytes.Contains(text, []byte(troff(flag))) {
				t.Errorf("%s has no %s", name, flag)
			}
		}
		if _, err := exec.LookPath("man"); err == nil {
			cmd := exec.Command("man", "--local-file", "--warnings", name)
			var warnings bytes.Buffer
			cmd.Stderr = &warnings
			out, err := cmd.Output()
			if err != nil || warnings.Len() > 0 || !bytes.Contains(out, []byte("SYNOPSIS")) {
				t.Errorf("%s: %v %s", name, err, warnings.String())
			}
		}
	}
}
