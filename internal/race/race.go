// SPDX-License-Identifier: MIT

// Package race tells tests whether the race detector runs. A test that the detector would distort or slow down
// asks for it by name, and "make test" runs each such test again without the detector; see scripts/unraced.
package race
