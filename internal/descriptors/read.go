// SPDX-License-Identifier: MIT

package descriptors

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
)

// File is the text of a file. Messages show its name.
type File struct {
	Name string
	Data []byte // nil: it is no regular file, of which Parse warns
}

// Names say which files of a directory Read reads, and of the directories below it.
type Names struct {
	Any  bool // also those whose names do not end in .yaml or .yml; a directory may have none
	Dots bool // also names that begin with a dot
}

// Read reads files, and the files of directories. Of a directory it reads the files whose names end in
// .yaml or .yml, in the order of their names, and those of the directories below it. It skips names that
// begin with a dot, as the mounts of Kubernetes have them. A path that is no directory can have any name.
// names change this.
//
// A name *.yaml or *.yml in a directory can be something else, such as a pipe or a link to a directory.
// Kubernetes mounts an empty directory in place of a missing file. Read returns such a name without Data.
//
// A directory without such files is an error. So are more than 8 MiB in all files together.
func Read(paths []string, names Names) ([]File, error) {
	var all []candidate
	for _, path := range paths {
		list, err := names.filesOf(path)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	files, room := make([]File, 0, len(all)), int64(bounds.MaxFile)
	for _, f := range all {
		if f.irregular {
			files = append(files, File{f.name, nil})
			continue
		}
		data, err := readFile(f.name, room+1)
		if err != nil {
			return nil, err
		}
		if room -= int64(len(data)); room < 0 {
			return nil, fmt.Errorf("%s: expected at most %d KiB in all files together, found more", f.name, bounds.MaxFile>>10)
		}
		files = append(files, File{f.name, data})
	}
	return files, nil
}

// candidate is a name that a path means.
type candidate struct {
	name      string
	irregular bool // it is no regular file
}

// filesOf returns what a path means.
func (n Names) filesOf(path string) (list []candidate, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []candidate{{name: path}}, nil
	}
	if err := n.addFiles(&list, path); err != nil {
		return nil, err
	}
	if !n.Any && !slices.ContainsFunc(list, func(f candidate) bool { return !f.irregular }) {
		return nil, fmt.Errorf("%s: expected files *.yaml or *.yml, found none", path)
	}
	return list, nil
}

// addFiles adds the files in a directory. It follows links to files only, because a link to a directory can
// lead back.
func (n Names) addFiles(list *[]candidate, directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := filepath.Join(directory, entry.Name())
		if !n.Dots && strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		ext := filepath.Ext(name)
		named := n.Any || ext == ".yaml" || ext == ".yml"
		if entry.IsDir() {
			before := len(*list)
			if err := n.addFiles(list, name); err != nil {
				return err
			}
			if named && !n.Any && len(*list) == before {
				*list = append(*list, candidate{name, true})
			}
			continue
		}
		if !named {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		*list = append(*list, candidate{name, !info.Mode().IsRegular()})
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
