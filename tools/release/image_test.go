// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var imageFile = flag.String("image", "", "the image of a release; the tests of images are skipped without it")

// untar unpacks an archive into a folder.
func untar(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			if err := os.Symlink(h.Linkname, name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, h.FileInfo().Mode())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(f, archive); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// index returns the index of the image's architectures.
func index(t *testing.T) v1.ImageIndex {
	t.Helper()
	if *imageFile == "" {
		t.Skip("no -image")
	}
	f, err := os.Open(*imageFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	untar(t, f, dir)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return inner
}

// All digests and sizes of the image are right, and it has both architectures.
func TestImageIsValid(t *testing.T) {
	inner := index(t)
	if err := validate.Index(inner); err != nil {
		t.Error(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
		t.Errorf("the image is for %s", got)
	}
}

// The image runs in namespaces of its own: its user, its files alone, and its command with other ports.
func TestImageRuns(t *testing.T) {
	inner := index(t)
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	files := mutate.Extract(image)
	defer files.Close()
	untar(t, files, root)
	if program, err := filepath.EvalSymlinks(filepath.Join(root, "bin", "ratelimit")); err != nil || program != filepath.Join(root, "diana") {
		t.Errorf("/bin/ratelimit is %s, %v, want diana", program, err)
	}
	for dir := root; dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755|os.ModeSticky); err != nil { // a temporary folder is closed to the image's user
			break
		}
		if dir == os.TempDir() {
			break
		}
	}
	args := append(config.Config.Cmd, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	cmd := exec.Command(config.Config.Entrypoint[0], args...)
	cmd.Env, cmd.Dir = config.Config.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532}, Pdeathsig: syscall.SIGKILL,
	}
	if config.Config.User != "65532:65532" {
		t.Errorf("the image's user is %s", config.Config.User)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	answered := 0
	for answered < 2 && lines.Scan() {
		fields := strings.Fields(lines.Text()) // such as "diana: listening on http://127.0.0.1:8080"
		address := strings.TrimPrefix(fields[len(fields)-1], "http://")
		path := "/"
		if answered == 1 {
			path = "/readyz"
		}
		answer, err := http.Get("http://" + address + path)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %v", lines.Text(), answer, err)
		}
		if err == nil {
			_ = answer.Body.Close() // the status is enough
		}
		answered++
	}
	if answered != 2 {
		t.Error("the gateway prints fewer than two addresses")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the gateway ends with %v", err)
	}
}
