/** The row of a table that the keys act on. */
export class Selection {
  at = $state(0);
  private count: () => number;
  private rows: string;

  /** `count` is the number of rows, `rows` the selector of their elements. */
  constructor(count: () => number, rows: string) {
    this.count = count;
    this.rows = rows;
  }

  private move(to: number) {
    this.at = Math.max(0, Math.min(this.count() - 1, to));
    document.querySelectorAll(this.rows)[this.at]?.scrollIntoView({ block: "nearest" });
  }

  /** Goes to the next or previous row; whether the key is one of those that do so. */
  takes(key: string): boolean {
    if (key === "j") this.move(this.at + 1);
    else if (key === "k") this.move(this.at - 1);
    else return false;
    return true;
  }
}
