// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
)

// debs writes a Debian package for each architecture of Linux; packaging/debian/nfpm.yaml describes it.
func debs(b *build) error {
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		if err := debianPackage(b, t.arch); err != nil {
			return err
		}
	}
	return nil
}

func debianPackage(b *build, arch string) error {
	description, err := os.Open(filepath.Join(b.clone, "packaging/debian/nfpm.yaml"))
	if err != nil {
		return err
	}
	defer description.Close()
	values := map[string]string{
		"VERSION": b.version, "ARCH": arch, "CLONE": b.clone, "SHARE": b.share, "PROGRAM": b.binary("linux", arch),
	}
	c, err := nfpm.ParseWithEnvMapping(description, func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	c.MTime = b.when
	for _, script := range []*string{&c.Scripts.PostInstall, &c.Scripts.PreRemove, &c.Scripts.PostRemove} {
		*script = filepath.Join(b.clone, *script)
	}
	info, err := c.Get("deb")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(b.dist, fmt.Sprintf("diana_%s_%s.deb", b.version, arch)))
	if err != nil {
		return err
	}
	if err := deb.Default.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}
