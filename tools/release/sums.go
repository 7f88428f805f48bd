// SPDX-License-Identifier: MIT

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sums writes SHA256SUMS, which "sha256sum --check" reads.
func sums(b *build) error {
	files, err := os.ReadDir(b.dist)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(b.dist, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	return os.WriteFile(filepath.Join(b.dist, "SHA256SUMS"), []byte(text.String()), 0o644)
}
