// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// library is the path of the module whose tags have no folder before the version.
const library = "github.com/diana-limiter/diana"

var (
	validVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	firstSection = regexp.MustCompile(`(?m)^## (\S+)( - \d{4}-\d\d-\d\d)?$`)
)

// check returns an error if a release must not be made of the repository as it is.
func check(root, version string) error {
	if !validVersion.MatchString(version) {
		return fmt.Errorf("VERSION is %q, expected one such as v1.2.3 or v1.2.3-rc.1", version)
	}
	changed, err := output(root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the work tree has changes that are not committed:\n%s", changed)
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	section := firstSection.FindStringSubmatch(string(text))
	if section == nil || section[1] != version {
		return fmt.Errorf("the first section of CHANGELOG.md is not %q", "## "+version)
	}
	if _, err := output(root, nil, "scripts/modules", "check"); err != nil {
		return err
	}
	exist, err := tagged(root, version)
	if err != nil {
		return err
	}
	if exist && section[2] == "" {
		return fmt.Errorf("the tag %s exists, but the first section of CHANGELOG.md has no date", version)
	}
	if exist {
		if _, err := output(root, nil, "scripts/modules", "check", version); err != nil {
			return fmt.Errorf("the tag %s exists, but not all modules require it: %w", version, err)
		}
	}
	_, err = output(root, nil, "scripts/modules", "api")
	return err
}

// prepare clones the repository. In the clone, it commits what a release changes and sets the tags. The
// commit has the time of its parent, so that repeated runs make the same release.
func prepare(root, work, version string, dry bool) (clone string, err error) {
	clone = filepath.Join(work, "clone")
	date, err := output(root, nil, "git", "show", "-s", "--format=%cI")
	if err != nil {
		return "", err
	}
	env := []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
	name, noName := output(root, nil, "git", "config", "user.name")
	email, noEmail := output(root, nil, "git", "config", "user.email")
	if dry || noName == nil && noEmail == nil {
		name, email = cmp.Or(name, "diana"), cmp.Or(email, "diana@localhost")
	} else {
		return "", errors.New("git has no user.name and user.email for the release commit")
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--shared", "--no-tags", root, clone},
		{"-C", clone, "config", "user.name", name},
		{"-C", clone, "config", "user.email", email},
	} {
		if _, err := output(root, nil, "git", args...); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"set", version}, {"api", "-w"}} {
		if _, err := output(clone, nil, "scripts/modules", args...); err != nil {
			return "", err
		}
	}
	if err := dateChangelog(clone, version, date[:len("2006-01-02")]); err != nil {
		return "", err
	}
	changed, err := output(clone, nil, "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		if _, err := output(clone, nil, "git", "add", "--all"); err != nil {
			return "", err
		}
		if _, err := output(clone, env, "git", "commit", "--quiet", "-m", "release: "+version); err != nil {
			return "", err
		}
	}
	tags, err := tagNames(clone, version)
	if err != nil {
		return "", err
	}
	for _, tag := range tags {
		if _, err := output(clone, env, "git", "tag", "-a", "-m", tag, tag); err != nil {
			return "", err
		}
	}
	return clone, nil
}

// dateChangelog adds the date to the heading of a version.
func dateChangelog(clone, version, date string) error {
	name := filepath.Join(clone, "CHANGELOG.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	dated := strings.Replace(string(text), "\n## "+version+"\n", "\n## "+version+" - "+date+"\n", 1)
	return os.WriteFile(name, []byte(dated), 0o644)
}

// tagNames returns the tag of each published module: the version, after the module's folder.
func tagNames(clone, version string) (tags []string, err error) {
	list, err := output(clone, nil, "scripts/modules", "list")
	if err != nil {
		return nil, err
	}
	for path := range strings.FieldsSeq(list) {
		tags = append(tags, strings.TrimPrefix(strings.TrimPrefix(path+"/", library+"/")+version, "/"))
	}
	return tags, nil
}

// tagged reports whether this commit has all tags of a version. If it has not, none of them may exist.
func tagged(root, version string) (bool, error) {
	tags, err := tagNames(root, version)
	if err != nil {
		return false, err
	}
	list, err := output(root, nil, "git", "tag", "--list")
	if err != nil {
		return false, err
	}
	here, err := output(root, nil, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return false, err
	}
	exist, atHead := strings.Fields(list), strings.Fields(here)
	var found, missing []string
	for _, tag := range tags {
		switch {
		case slices.Contains(atHead, tag):
			found = append(found, tag)
		case slices.Contains(exist, tag):
			return false, fmt.Errorf("the tag %s exists, and is not at this commit", tag)
		default:
			missing = append(missing, tag)
		}
	}
	if len(found) > 0 && len(missing) > 0 {
		return false, fmt.Errorf("the tag %s exists, but %s does not", found[0], strings.Join(missing, ", "))
	}
	return len(found) > 0, nil
}

// accept takes the commit and the tags from the clone, and prints the command that publishes them. It takes
// nothing if the tags exist already.
func accept(root, clone, version string) error {
	tags, err := tagNames(clone, version)
	if err != nil {
		return err
	}
	exist, err := tagged(root, version)
	if err != nil {
		return err
	}
	if exist {
		fmt.Println("release: the tags exist: no commit and no tag made")
		return nil
	}
	args := []string{"fetch", "--quiet", "--no-tags", clone, "HEAD"}
	for _, tag := range tags {
		args = append(args, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	if _, err := output(root, nil, "git", args...); err != nil {
		return err
	}
	commit, err := output(clone, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := output(root, nil, "git", "merge", "--quiet", "--ff-only", commit); err != nil {
		return err
	}
	fmt.Printf("release: publish it with: git push --atomic origin HEAD %s\n", strings.Join(tags, " "))
	return nil
}
