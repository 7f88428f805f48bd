// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes the container image of all architectures as one archive in the layout of OCI.
// packaging/container/Dockerfile builds the same image on one machine.
func image(b *build) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		platform := &v1.Platform{OS: t.os, Architecture: t.arch}
		one, err := imageOf(b, platform)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: platform}})
	}
	folder := filepath.Join(b.work, "image")
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": b.version}
	if err := at.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	text, err := archive(os.DirFS(folder), ".", b.when)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dist, "diana_"+b.version+"_image.tar"), text, 0o644)
}

// imageOf returns the image of one architecture. Its layer has the program, a configuration to start from,
// and the certificate authorities that Mozilla trusts.
func imageOf(b *build, platform *v1.Platform) (v1.Image, error) {
	program, err := os.ReadFile(b.binary(platform.OS, platform.Architecture))
	if err != nil {
		return nil, err
	}
	starter, err := os.ReadFile(filepath.Join(b.clone, "cmd/diana/starter.yaml"))
	if err != nil {
		return nil, err
	}
	files, err := archive(fstest.MapFS{
		"diana":                             {Data: program},
		"bin/ratelimit":                     {Data: []byte("../diana"), Mode: fs.ModeSymlink}, // in place of envoyproxy/ratelimit
		"etc/diana/limits.yaml":             {Data: starter},
		"etc/ssl/certs/ca-certificates.crt": {Data: authorities()},
	}, ".", b.when)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	one := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	one, err = mutate.ConfigFile(one, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: v1.Time{Time: b.when},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         "65532:65532",
			Entrypoint:   []string{"/diana"},
			Cmd:          []string{"serve", "--listen", ":8080", "--admin", ":9090", "--config", "/etc/diana/limits.yaml"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "9090/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "diana",
				"org.opencontainers.image.version":  b.version,
				"org.opencontainers.image.source":   "https://" + library,
				"org.opencontainers.image.licenses": "MIT",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(one, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: b.when}, CreatedBy: "make release"},
	})
}

// authorities returns certificates as PEM. An authority that may sign only some names is left out, because PEM
// cannot say so.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}
