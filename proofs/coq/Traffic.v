(* Theorem (c): the traffic of FlashAttention as functions on naturals.

   A schedule is a loop nest of loads and stores, a mirror of the simulator's
   tree.  Its traffic is computed by running over the nest, ragged tiles
   included, and is proved equal to a closed form:

     flash1 (K/V outer, Q inner)   nq (d + 2) + 2 nk d + T_c nq (3d + 4)
     flash2 (Q outer, K/V inner)   2 nq d + nq + T_r 2 nk d

   for all nq, nk, d and all positive tile heights br, bc; T_r = cdiv nq br,
   T_c = cdiv nk bc.  A second reading of the same nest, resident, proves that a
   schedule never holds more than M words.  Counts are in words.

   Source: Dao et al. 2022 (arXiv 2205.14135), Algorithm 1 and Theorem 2; Dao
   2023 (arXiv 2307.08691), Algorithm 1.  The sandwich between
   c1 N^2 d^2 / M and c2 N^2 d^2 / M is in TrafficBounds.v. *)
From Coq Require Import Arith Lia.
From iosim Require Import Tiles.

(* Schedules: words moved, room made and given up, loops. *)
Inductive prog :=
| Load (words : nat)          (* slow -> fast: counted, and takes room *)
| Store (words : nat)         (* fast -> slow: counted; the copy stays *)
| New (words : nat)           (* room without traffic *)
| Free (words : nat)          (* room given up *)
| Seq (p q : prog)
| For (n : nat) (body : nat -> prog).

Notation "p ;; q" := (Seq p q) (at level 60, right associativity).

Fixpoint loads (p : prog) : nat :=
  match p with
  | Load n => n
  | Store _ | New _ | Free _ => 0
  | Seq p q => loads p + loads q
  | For n body => sum n (fun i => loads (body i))
  end.

Fixpoint stores (p : prog) : nat :=
  match p with
  | Store n => n
  | Load _ | New _ | Free _ => 0
  | Seq p q => stores p + stores q
  | For n body => sum n (fun i => stores (body i))
  end.

Definition traffic p := loads p + stores p.

(* resident M p r: the words resident after p, when r were before it; None as
   soon as more than M are, or more are freed than there are. *)
Fixpoint iterate {A} (n : nat) (f : nat -> A -> option A) (a : A) : option A :=
  match n with
  | 0 => Some a
  | S n' => match iterate n' f a with Some b => f n' b | None => None end
  end.

Fixpoint resident (M : nat) (p : prog) (r : nat) : option nat :=
  match p with
  | Load n | New n => if r + n <=? M then Some (r + n) else None
  | Store n => if n <=? r then Some r else None
  | Free n => if n <=? r then Some (r - n) else None
  | Seq p q => match resident M p r with Some r' => resident M q r' | None => None end
  | For n body => iterate n (fun i => resident M (body i)) r
  end.

(* The schedule fits: it never holds more than M words, and leaves none. *)
Definition fits M p := resident M p 0 = Some 0.

(* FlashAttention-1, Algorithm 1; the inner body has q query rows and k key rows. *)
Definition flash1_inner (d q k : nat) : prog :=
  Load (q * d) ;; Load (q * d) ;; Load q ;; Load q ;;    (* line 8: Q_i, O_i, l_i, m_i *)
  New (q * k) ;; Free (q * k) ;;                         (* lines 9-11: S_ij, then P_ij in place *)
  Store (q * d) ;; Store q ;; Store q ;;                 (* lines 12-13: O_i, l_i, m_i *)
  Free (q * d) ;; Free (q * d) ;; Free q ;; Free q.

(* Key block j is met by the query blocks from first j on (0 without a mask). *)
Definition flash1_from (first : nat -> nat) (nq nk d br bc : nat) : prog :=
  For (cdiv nq br) (fun i =>                             (* line 2: O, l, m *)
    New (rows nq br i * (d + 2)) ;; Store (rows nq br i * (d + 2)) ;;
    Free (rows nq br i * (d + 2))) ;;
  For (cdiv nk bc) (fun j =>                             (* line 5 *)
    Load (rows nk bc j * d) ;; Load (rows nk bc j * d) ;;  (* line 6: K_j, V_j *)
    For (cdiv nq br - first j) (fun i =>                 (* line 7 *)
      flash1_inner d (rows nq br (first j + i)) (rows nk bc j)) ;;
    Free (rows nk bc j * d) ;; Free (rows nk bc j * d)).

Definition flash1 := flash1_from (fun _ => 0).

(* FlashAttention-2, Algorithm 1. *)
Definition flash2_inner (d q k : nat) : prog :=
  Load (k * d) ;; Load (k * d) ;;                        (* line 7: K_j, V_j *)
  New (q * k) ;; Free (q * k) ;;                         (* lines 8-10: S_ij, then P_ij in place *)
  Free (k * d) ;; Free (k * d).

(* Query block i meets the first visited i key blocks (all of them without a mask). *)
Definition flash2_upto (visited : nat -> nat) (nq nk d br bc : nat) : prog :=
  For (cdiv nq br) (fun i => let q := rows nq br i in    (* line 3 *)
    Load (q * d) ;;                                      (* line 4: Q_i *)
    New (q * d) ;; New q ;; New q ;;                     (* line 5: O_i, l_i, m_i *)
    For (visited i) (fun j => flash2_inner d q (rows nk bc j)) ;;   (* line 6 *)
    Store (q * d) ;; Store q ;;                          (* lines 14-15: O_i, LSE_i *)
    Free (q * d) ;; Free (q * d) ;; Free q ;; Free q).

Definition flash2 nq nk d br bc := flash2_upto (fun _ => cdiv nk bc) nq nk d br bc.

(* Closed forms *)

(* A loop whose body moves a words for each row. *)
Lemma sum_tiles n b f a : 0 < b ->
  (forall i, f i = rows n b i * a) -> sum (cdiv n b) f = n * a.
Proof.
  intros Hb E. rewrite (sum_ext _ _ _ (fun i _ => E i)).
  now rewrite sum_times_r, sum_rows.
Qed.

(* The rows of the query blocks from first on, and of the key blocks up to visited. *)
Definition rows_from nq br first := nq - first * br.
Definition rows_upto nk bc visited := Nat.min nk (visited * bc).

Lemma sum_rows_from n b first : 0 < b ->
  sum (cdiv n b - first) (fun i => rows n b (first + i)) = rows_from n b first.
Proof.
  intros Hb. unfold rows_from. pose proof (cdiv_lower n b Hb) as H.
  assert (E : forall t, sum t (fun i => rows n b (first + i))
                      = Nat.min n ((first + t) * b) - Nat.min n (first * b)).
  { induction t; cbn [sum]; [ rewrite Nat.add_0_r; lia | rewrite IHt; unfold rows; lia ]. }
  rewrite E. destruct (Nat.le_ge_cases first (cdiv n b)) as [L | L].
  - replace (first + (cdiv n b - first)) with (cdiv n b) by lia. lia.
  - apply (Nat.mul_le_mono_r _ _ b) in L.
    replace (cdiv n b - first) with 0 by (destruct b; nia). rewrite Nat.add_0_r. lia.
Qed.

Theorem flash1_from_loads first nq nk d br bc : 0 < br -> 0 < bc ->
  loads (flash1_from first nq nk d br bc)
  = 2 * nk * d + sum (cdiv nk bc) (fun j => rows_from nq br (first j)) * (2 * d + 2).
Proof.
  intros Hr Hc. cbn [loads flash1_from].
  rewrite (sum_ext (cdiv nq br) _ (fun _ => 0)) by (intros; lia). rewrite sum_const.
  rewrite (sum_ext _ _ (fun j => rows nk bc j * (2 * d) + rows_from nq br (first j) * (2 * d + 2))).
  - rewrite sum_plus, !sum_times_r, sum_rows by assumption. lia.
  - intros j _. rewrite (sum_ext _ _ (fun i => rows nq br (first j + i) * (2 * d + 2)))
      by (intros; cbn; lia).
    rewrite sum_times_r, sum_rows_from by assumption. lia.
Qed.

Theorem flash1_from_stores first nq nk d br bc : 0 < br -> 0 < bc ->
  stores (flash1_from first nq nk d br bc)
  = nq * (d + 2) + sum (cdiv nk bc) (fun j => rows_from nq br (first j)) * (d + 2).
Proof.
  intros Hr Hc. cbn [stores flash1_from].
  rewrite (sum_tiles nq br _ (d + 2)) by (trivial; intros; lia).
  rewrite (sum_ext _ _ (fun j => rows_from nq br (first j) * (d + 2))).
  - now rewrite sum_times_r.
  - intros j _. rewrite (sum_ext _ _ (fun i => rows nq br (first j + i) * (d + 2)))
      by (intros; cbn; lia).
    rewrite sum_times_r, sum_rows_from by assumption. lia.
Qed.

Theorem flash2_upto_loads visited nq nk d br bc : 0 < br ->
  loads (flash2_upto visited nq nk d br bc)
  = nq * d + sum (cdiv nq br) (fun i => rows_upto nk bc (visited i)) * (2 * d).
Proof.
  intros Hr. cbn [loads flash2_upto].
  rewrite (sum_ext _ _ (fun i => rows nq br i * d + rows_upto nk bc (visited i) * (2 * d))).
  - now rewrite sum_plus, !sum_times_r, sum_rows.
  - intros i _. cbn zeta.
    rewrite (sum_ext _ _ (fun j => rows nk bc j * (2 * d))) by (intros; cbn; lia).
    rewrite sum_times_r, sum_rows_upto. unfold rows_upto. lia.
Qed.

Theorem flash2_upto_stores visited nq nk d br bc : 0 < br ->
  stores (flash2_upto visited nq nk d br bc) = nq * d + nq.
Proof.
  intros Hr. cbn [stores flash2_upto].
  rewrite (sum_tiles nq br _ (d + 1)); [ lia | trivial | ].
  intros i. cbn zeta.
  rewrite (sum_ext _ _ (fun _ => 0)) by (intros; cbn; lia). rewrite sum_const. lia.
Qed.

Theorem flash1_from_traffic first nq nk d br bc : 0 < br -> 0 < bc ->
  traffic (flash1_from first nq nk d br bc)
  = nq * (d + 2) + 2 * nk * d
    + sum (cdiv nk bc) (fun j => rows_from nq br (first j)) * (3 * d + 4).
Proof.
  intros Hr Hc. unfold traffic. rewrite flash1_from_loads, flash1_from_stores by assumption. lia.
Qed.

Theorem flash2_upto_traffic visited nq nk d br bc : 0 < br ->
  traffic (flash2_upto visited nq nk d br bc)
  = 2 * nq * d + nq + sum (cdiv nq br) (fun i => rows_upto nk bc (visited i)) * (2 * d).
Proof.
  intros Hr. unfold traffic. rewrite flash2_upto_loads, flash2_upto_stores by assumption. lia.
Qed.

(* Without a mask: reads, writes, total. *)
Theorem flash1_reads_writes nq nk d br bc : 0 < br -> 0 < bc ->
  loads (flash1 nq nk d br bc) = 2 * nk * d + cdiv nk bc * (nq * (2 * d + 2)) /\
  stores (flash1 nq nk d br bc) = nq * (d + 2) + cdiv nk bc * (nq * (d + 2)).
Proof.
  intros Hr Hc. unfold flash1. rewrite flash1_from_loads, flash1_from_stores by assumption.
  rewrite (sum_ext _ _ (fun _ => nq)) by (intros; unfold rows_from; lia).
  rewrite sum_const. lia.
Qed.

Theorem flash2_reads_writes nq nk d br bc : 0 < br -> 0 < bc ->
  loads (flash2 nq nk d br bc) = nq * d + cdiv nq br * (2 * nk * d) /\
  stores (flash2 nq nk d br bc) = nq * d + nq.
Proof.
  intros Hr Hc. unfold flash2. rewrite flash2_upto_loads, flash2_upto_stores by assumption.
  pose proof (cdiv_lower nk bc Hc).
  rewrite (sum_ext _ _ (fun _ => nk)) by (intros; unfold rows_upto; lia).
  rewrite sum_const. lia.
Qed.

Theorem flash1_traffic nq nk d br bc : 0 < br -> 0 < bc ->
  traffic (flash1 nq nk d br bc)
  = nq * (d + 2) + 2 * nk * d + cdiv nk bc * (nq * (3 * d + 4)).
Proof.
  intros Hr Hc. unfold traffic.
  destruct (flash1_reads_writes nq nk d br bc Hr Hc) as [-> ->]. lia.
Qed.

Theorem flash2_traffic nq nk d br bc : 0 < br -> 0 < bc ->
  traffic (flash2 nq nk d br bc) = 2 * nq * d + nq + cdiv nq br * (2 * nk * d).
Proof.
  intros Hr Hc. unfold traffic.
  destruct (flash2_reads_writes nq nk d br bc Hr Hc) as [-> ->]. lia.
Qed.

(* What fits in M *)

Lemma iterate_fixed {A} n (f : nat -> A -> option A) a :
  (forall i, i < n -> f i a = Some a) -> iterate n f a = Some a.
Proof.
  induction n; intros H; cbn; [ reflexivity | ].
  rewrite IHn by auto. apply H. auto.
Qed.

Ltac room := match goal with
  | |- context [?a <=? ?b] => rewrite (proj2 (Nat.leb_le a b)) by nia
  end.

Theorem flash1_fits first nq nk d br bc M :
  2 * bc * d + 2 * br * d + 2 * br + br * bc <= M ->
  fits M (flash1_from first nq nk d br bc).
Proof.
  intros HM. unfold fits, flash1_from. cbn [resident].
  rewrite iterate_fixed.
  2: { intros i _. pose proof (rows_le nq br i). cbn. repeat room. f_equal. lia. }
  rewrite iterate_fixed; [ reflexivity | ].
  intros j _. pose proof (rows_le nk bc j) as Hk. cbn zeta. cbn [resident].
  set (k := rows nk bc j) in *. clearbody k.
  assert (k * d <= bc * d) by nia.
  do 2 room. rewrite iterate_fixed.
  - do 2 room. f_equal. lia.
  - intros i _. pose proof (rows_le nq br (first j + i)) as Hq. cbn.
    set (q := rows nq br (first j + i)) in *. clearbody q.
    assert (q * d <= br * d) by nia. assert (q * k <= br * bc) by nia.
    repeat room. f_equal. lia.
Qed.

Theorem flash2_fits visited nq nk d br bc M :
  2 * br * d + 2 * br + 2 * bc * d + br * bc <= M ->
  fits M (flash2_upto visited nq nk d br bc).
Proof.
  intros HM. unfold fits, flash2_upto. cbn [resident].
  rewrite iterate_fixed; [ reflexivity | ].
  intros i _. pose proof (rows_le nq br i) as Hq. cbn zeta. cbn [resident].
  set (q := rows nq br i) in *. clearbody q.
  assert (q * d <= br * d) by nia.
  do 4 room. rewrite iterate_fixed.
  - repeat room. f_equal. lia.
  - intros j _. pose proof (rows_le nk bc j) as Hk. cbn.
    set (k := rows nk bc j) in *. clearbody k.
    assert (k * d <= bc * d) by nia. assert (q * k <= br * bc) by nia.
    repeat room. f_equal. lia.
Qed.
