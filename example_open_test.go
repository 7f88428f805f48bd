// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/diana-limiter/diana"
)

// A server limits its clients by a file.
func Example() {
	mux := http.NewServeMux()

	limiter, err := diana.Open("diana.yaml")
	if err != nil {
		log.Fatal(err) // every mistake in the file, with line and column
	}
	defer limiter.Close()
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
}

// A change of the file takes effect within two seconds, or at once by Reload. A file with mistakes
// changes nothing.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "diana")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "diana.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: 1, algo: W, align: first}]}")
	limiter, err := diana.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	allowed := func() bool {
		d, err := limiter.Take(context.Background(), diana.Request{Path: "/reports"})
		if err != nil {
			log.Fatal(err)
		}
		defer d.Done()
		return d.Allowed
	}
	fmt.Println(allowed(), allowed())

	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: 3, algo: W, align: first}]}")
	if err := limiter.Reload(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(allowed(), allowed(), allowed())

	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: many}]}")
	fmt.Println(limiter.Reload() != nil, limiter.Status().Rules[0].Limit)
	// Output:
	// true false
	// true true false
	// true 3
}
