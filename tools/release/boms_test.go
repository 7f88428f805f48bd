// SPDX-License-Identifier: MIT

package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// A bill of materials has the modules that "go version -m" finds in the program, with their sums, and no others.
// -program says which program; without it the test itself is one.
func TestBillOfMaterials(t *testing.T) {
	program := *programFile
	if program == "" {
		program = os.Args[0]
	}
	checkBOM(t, program, nil)
}

// checkBOM compares the bill of materials of a program with what the Go command finds. If bill is nil, it makes one.
func checkBOM(t *testing.T, program string, bill []byte) {
	t.Helper()
	if bill == nil {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).Encode(bom(info, time.Now())); err != nil {
			t.Fatal(err)
		}
		bill = []byte(text.String())
	}
	printed, err := output(".", nil, "go", "version", "-m", program)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(printed) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) > 3 && fields[1] == "dep" {
			sum := ""
			if len(fields) > 4 {
				raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(fields[4], "h1:"))
				if err != nil {
					t.Fatal(err)
				}
				sum = hex.EncodeToString(raw)
			}
			want = append(want, fields[2]+"@"+fields[3]+" "+sum)
		}
	}
	decoded := cyclonedx.BOM{}
	if err := cyclonedx.NewBOMDecoder(strings.NewReader(string(bill)), cyclonedx.BOMFileFormatJSON).Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range *decoded.Components {
		if c.Name == "std" {
			continue
		}
		sum := ""
		if c.Hashes != nil {
			sum = (*c.Hashes)[0].Value
		}
		got = append(got, c.Name+"@"+c.Version+" "+sum)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the bill has\n%s\nand go version -m has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
