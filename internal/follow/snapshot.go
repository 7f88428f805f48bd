// SPDX-License-Identifier: MIT

package follow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
)

// A snapshot is a file that holds the last good document of a remote configuration. It is used at a
// start when the source is unavailable. Its first line has the URL and a checksum, so that a file
// that was changed or cut short is not used:
//
//	# diana snapshot sha256=... of etcd://127.0.0.1:2379/diana/limits
const snapshotMark = "# diana snapshot sha256="

const longestHead = 8 << 10 // most bytes of the first line

func snapshotHead(where string, text []byte) string {
	sum := sha256.Sum256(append([]byte(where+"\n"), text...))
	return snapshotMark + hex.EncodeToString(sum[:]) + " of " + where + "\n"
}

// writeSnapshot replaces the file atomically. Only its owner can read it.
func writeSnapshot(file, where string, text []byte) error {
	if err := ours(file); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed if nothing failed
	_, err = f.Write(append([]byte(snapshotHead(where, text)), text...))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// readSnapshot returns the document in a snapshot of the remote configuration at where. The
// error is os.ErrNotExist if the file does not exist.
func readSnapshot(file, where string) ([]byte, error) {
	data, err := readRegular(file, bounds.MaxConfig+longestHead)
	if err != nil {
		return nil, err
	}
	head, text, _ := bytes.Cut(data, []byte("\n"))
	switch _, of, ok := strings.Cut(string(head), " of "); {
	case !ok || !strings.HasPrefix(string(head), snapshotMark):
		return nil, fmt.Errorf("%s is not a snapshot, expected %q in its first line", file, snapshotMark+"...")
	case of != where:
		return nil, fmt.Errorf("%s is a snapshot of %s, expected one of %s", file, of, where)
	case snapshotHead(where, text) != string(head)+"\n":
		return nil, fmt.Errorf("%s has been changed or cut short: its checksum is not that of its text", file)
	}
	return text, nil
}

// removeSnapshot removes the snapshot of a source that no longer has a document.
func removeSnapshot(file string) error {
	if err := ours(file); err != nil {
		return err
	}
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ours returns an error if the file exists and is not a snapshot. Its name was configured by
// mistake; it may be that of the configuration itself. A file that may not be read can be a
// snapshot.
func ours(file string) error {
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular():
		text, err := readRegular(file, int64(len(snapshotMark))-1)
		if errors.Is(err, fs.ErrPermission) || err == nil && strings.HasPrefix(snapshotMark, string(text)) { // a start of it may have been cut short
			return nil
		}
	}
	return fmt.Errorf("%s is not a snapshot, so it was not replaced: expected another name", file)
}
