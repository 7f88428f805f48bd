// SPDX-License-Identifier: MIT

package descriptors

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
)

// File is the text of a file. Messages show its name.
type File struct {
	Name string
	Data []byte
}

// Read reads files, and the files of directories. Of a directory it reads the files whose names end in
// .yaml or .yml, in the order of their names, and those of the directories below it. It skips names that
// begin with a dot, as the mounts of Kubernetes have them. A path that is no directory can have any name.
//
// A directory without such files is an error. So are more than 8 MiB in all files together.
func Read(paths []string) ([]File, error) {
	var names []string
	for _, path := range paths {
		found, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	files, room := make([]File, 0, len(names)), int64(bounds.MaxFile)
	for _, name := range names {
		data, err := readFile(name, room+1)
		if err != nil {
			return nil, err
		}
		if room -= int64(len(data)); room < 0 {
			return nil, fmt.Errorf("%s: expected at most %d KiB in all files together, found more", name, bounds.MaxFile>>10)
		}
		files = append(files, File{name, data})
	}
	return files, nil
}

// filesOf returns the names of the files that a path means.
func filesOf(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	if err := addFiles(&names, path); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: expected files *.yaml or *.yml, found none", path)
	}
	return names, nil
}

// addFiles adds the names of the files in a directory. It follows links to files only, because a link to
// a directory can lead back.
func addFiles(names *[]string, directory string) error {
	list, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range list {
		name := filepath.Join(directory, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if entry.IsDir() {
			if err := addFiles(names, name); err != nil {
				return err
			}
			continue
		}
		if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		*names = append(*names, name)
	}
	return nil
}

func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
