// SPDX-License-Identifier: MIT

package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// boms writes a bill of materials in the form of CycloneDX beside each program: the modules that the
// program contains, as the Go toolchain has written them into it.
func boms(b *build) error {
	for _, t := range targets {
		name := b.binary(t.os, t.arch)
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := os.Create(name + ".cdx.json")
		if err != nil {
			return err
		}
		if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom(info, b.when)); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// bom returns a bill of materials without a serial number, which would be random.
func bom(info *buildinfo.BuildInfo, when time.Time) *cyclonedx.BOM {
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, info.Main.Version, info.Main.Sum)
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	modules := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", goVersion, "")}
	uses := []string{modules[0].BOMRef}
	for _, m := range info.Deps {
		c := component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version, m.Sum)
		modules = append(modules, c)
		uses = append(uses, c.BOMRef)
	}
	result := cyclonedx.NewBOM()
	result.Metadata = &cyclonedx.Metadata{Timestamp: when.Format(time.RFC3339), Component: &main}
	result.Components = &modules
	result.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}
	return result
}

func component(kind cyclonedx.ComponentType, path, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{Type: kind, BOMRef: url, PackageURL: url, Name: path, Version: version}
	if text, ok := strings.CutPrefix(sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
		}
	}
	return c
}
