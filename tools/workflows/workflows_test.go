// SPDX-License-Identifier: MIT

// Package workflows tests what CI runs: the workflows in the folder .github, and that "make test" leaves no test out.
package workflows

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// root is the folder of the repository.
var root = filepath.Join("..", "..")

// actionlint finds no mistake in the workflows. It does not look for shellcheck, which not every machine has.
func TestActionlint(t *testing.T) {
	t.Parallel()
	args := append([]string{"tool", "-modfile", "../lint/go.mod", "actionlint", "-shellcheck="}, workflows(t)...)
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// workflows returns the files of all workflows.
func workflows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatal("there are no workflows", err)
	}
	return files
}

// makeTarget matches the line of the Makefile that begins a target.
var makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):( |$)`)

// The workflows of GitHub call targets of the Makefile and nothing else, so that each step can be run on any
// machine. They may only read the repository.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(read(t, filepath.Join(root, "Makefile"))), -1) {
		targets[m[1]] = true
	}
	for _, file := range workflows(t) {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Steps       []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal(read(t, file), &workflow); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if want := map[string]string{"contents": "read"}; !maps.Equal(workflow.Permissions, want) {
			t.Errorf("%s: permissions are %v, expected %v", file, workflow.Permissions, want)
		}
		for name, job := range workflow.Jobs {
			if job.Permissions != nil {
				t.Errorf("%s: the job %s has permissions of its own", file, name)
			}
			for _, step := range job.Steps {
				if step.Uses == "" && !isMake(step.Run, targets) {
					t.Errorf("%s: %q runs something else than a target of the Makefile", file, step.Run)
				}
			}
		}
	}
}

// variable matches a variable of make on its command line.
var variable = regexp.MustCompile(`^[A-Z]+=("\$[A-Z_]+"|[\w./-]+)$`)

// isMake reports whether a command is one call of make with targets and variables.
func isMake(command string, targets map[string]bool) bool {
	words := strings.Fields(command)
	return len(words) > 1 && words[0] == "make" && targets[words[1]] && !strings.Contains(command, "\n") &&
		!slices.ContainsFunc(words[1:], func(w string) bool { return !targets[w] && !variable.MatchString(w) })
}

func TestIsMake(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]bool{
		"make check": true, "make lint test": true, `make check VERSION="$GITHUB_REF_NAME" DRY=1`: true,
		"make": false, "make sandwich": false, "make check && curl x": false, "make check; x": false, "go test": false,
		"make check\nmake lint": false, "make check V=$(x)": false,
	} {
		if got := isMake(command, map[string]bool{"check": true, "lint": true, "test": true}); got != want {
			t.Errorf("%q: %v, expected %v", command, got, want)
		}
	}
}

// pinned matches an action with its commit, and a base image with its digest. Both have their version too. The owner of
// a version can replace what it names, so a version alone is not enough.
var pinned = regexp.MustCompile(`^(uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|FROM \S+:\d+\.\d+\.\d+@sha256:[0-9a-f]{64}( AS \w+)?|FROM scratch)$`)

// Every action is pinned by its commit, and every base image by its digest. Dependabot updates both.
func TestPinned(t *testing.T) {
	t.Parallel()
	files, updates := workflows(t), string(read(t, filepath.Join(root, ".github", "dependabot.yml")))
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(d.Name(), "Dockerfile"):
			files = append(files, name)
			folder, _ := filepath.Rel(root, filepath.Dir(name))
			if want := "package-ecosystem: docker\n    directory: /" + filepath.ToSlash(folder) + "\n"; !strings.Contains(updates, want) {
				t.Errorf(".github/dependabot.yml does not have %q", want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		for line := range strings.Lines(string(read(t, file))) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
			if !strings.HasPrefix(line, "uses:") && !strings.HasPrefix(line, "FROM ") {
				continue
			}
			if found++; !pinned.MatchString(line) {
				t.Errorf("%s: %q is not pinned", file, line)
			}
		}
	}
	if found < 6 {
		t.Errorf("%d lines were found", found)
	}
}

// Dependabot updates all modules.
func TestDependencyUpdates(t *testing.T) {
	t.Parallel()
	var settings struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(root, ".github", "dependabot.yml")), &settings); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, u := range settings.Updates {
		if u.Ecosystem == "gomod" {
			listed = u.Directories
		}
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		within, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		folder := path.Join("/", filepath.ToSlash(within))
		if !slices.ContainsFunc(listed, func(pattern string) bool {
			matched, _ := path.Match(pattern, folder)
			return matched
		}) {
			t.Errorf(".github/dependabot.yml does not list the module in %s", folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
