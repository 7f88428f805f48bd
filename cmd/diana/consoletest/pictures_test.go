// SPDX-License-Identifier: MIT

package consoletest

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mostBytes is the largest picture. They are small, because each clone of the repository has them all.
const mostBytes = 150_000

// shrink makes the pictures of a folder small, and writes them to another folder. It writes nothing if that is "".
func shrink(t *testing.T, from, to string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(from, "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		full, err := png.Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, fewColours(full)); err != nil {
			t.Fatal(err)
		}
		if small.Len() > mostBytes {
			t.Errorf("%s has %d bytes, want at most %d", filepath.Base(name), small.Len(), mostBytes)
		}
		if to == "" {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), small.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fewColours returns a picture with its 64 most frequent colours. The others, which smooth the edges of letters,
// become the nearest of these.
func fewColours(from image.Image) *image.Paletted {
	bounds := from.Bounds()
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	palette := color.Palette{}
	for _, c := range frequent[:min(len(frequent), 64)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return to
}
