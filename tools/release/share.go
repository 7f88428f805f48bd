// SPDX-License-Identifier: MIT

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// completions maps a shell to the file below /usr/share that it reads.
var completions = map[string]string{
	"bash": "bash-completion/completions/diana",
	"zsh":  "zsh/vendor-completions/_diana",
	"fish": "fish/vendor_completions.d/diana.fish",
}

// share lets the program itself write its manual pages and the files for completion, and packs them for
// systems without a package.
func share(b *build) error {
	program := b.binary(runtime.GOOS, runtime.GOARCH)
	if err := os.Chmod(program, 0o755); err != nil {
		return err
	}
	man := filepath.Join(b.share, "man/man1")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	if _, err := output(b.work, nil, program, "man", "--to", man, "--date", b.when.Format(time.DateOnly)); err != nil {
		return err
	}
	for shell, name := range completions {
		script, err := output(b.work, nil, program, "completion", shell)
		if err != nil {
			return err
		}
		name = filepath.Join(b.share, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	if err := settle(b.share, b.when); err != nil {
		return err
	}
	text, err := archive(os.DirFS(b.share), "share", b.when)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	if _, err := zipped.Write(text); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dist, "diana_"+b.version+"_share.tar.gz"), packed.Bytes(), 0o644)
}

// settle gives the files of a tree one time, and modes that do not depend on the umask.
func settle(tree string, when time.Time) error {
	return filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return errors.Join(os.Chmod(name, mode), os.Chtimes(name, when, when))
	})
}

// archive packs a tree below a folder. The owner of all files is root. A program is executable, and
// everyone can read the rest.
func archive(tree fs.FS, below string, when time.Time) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." && below == "." {
			return err
		}
		h := &tar.Header{Name: path.Join(below, name), ModTime: when, Mode: 0o644, Format: tar.FormatPAX}
		if d.IsDir() {
			h.Name, h.Typeflag, h.Mode = h.Name+"/", tar.TypeDir, 0o755
			return w.WriteHeader(h)
		}
		if d.Type()&fs.ModeSymlink != 0 {
			h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
			if h.Linkname, err = fs.ReadLink(tree, name); err != nil {
				return err
			}
			return w.WriteHeader(h)
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(content), "\x7fELF") {
			h.Mode = 0o755
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	return text.Bytes(), errors.Join(err, w.Close())
}
