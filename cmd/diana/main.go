// SPDX-License-Identifier: MIT

// Diana is a gateway that limits requests by rules, and tools for the configurations
// that the rules are written in. See diana --help.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
