// Vale checks the prose of documents and comments by the rules in styles/Diana.
//
//	vale [-C FOLDER] PATH...
//
// The paths are files and folders, relative to the folder. Vale prints a line for each mistake and
// exits with status 1 if it has found one.
//
// The program of the same name that it runs reads Markdown. So this one writes the comments of other
// files to a temporary folder, as Markdown with the same line numbers.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	folder := flag.String("C", ".", "the folder that paths are relative to")
	flag.Parse()
	found, err := check(*folder, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vale:", err)
		os.Exit(2)
	}
	fmt.Print(found)
	if found != "" {
		os.Exit(1)
	}
}

// check returns the mistakes in the files and folders, one a line.
func check(folder string, paths []string) (string, error) {
	temp, err := os.MkdirTemp("", "vale")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	for _, p := range paths {
		if err := extract(folder, p, temp); err != nil {
			return "", err
		}
	}
	var out, errs bytes.Buffer
	cmd := exec.Command("go", "tool", "-modfile", "../lint/go.mod", "vale", "--no-exit", "--config", ".vale.ini", "--output", "line", temp)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, out.Bytes(), errs.Bytes())
	}
	var found strings.Builder
	for line := range strings.Lines(out.String()) {
		line = strings.TrimPrefix(line, temp+string(filepath.Separator))
		found.WriteString(strings.Replace(line, extension+":", ":", 1))
	}
	return found.String(), nil
}

// extension is added to the names of files in the temporary folder.
const extension = ".prose.md"

// extract writes the prose of a file, or of all files below a folder, to the temporary folder.
// It skips testdata and dependencies.
func extract(folder, path, temp string) error {
	return filepath.WalkDir(filepath.Join(folder, path), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		comments := reader(name)
		if comments == nil {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		target := filepath.Join(temp, relative+extension)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return os.WriteFile(target, comments(text), 0o600)
	})
}
